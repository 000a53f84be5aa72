"""The verification process: its exit code, its reports, and what it refuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

from exporter.backends.tiny_models import left_padded, make_spec, tiny_bert
from verifier.artifacts import Built, build

SOURCES = [entry for entry in map(os.path.abspath, sys.path) if os.path.isdir(entry)]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    spec = make_spec("dynamo", {"dynamic": True})
    inputs = left_padded(2, 8, 0)
    # Embeddings are padded on the right.
    inputs["attention_mask"][1, 5:] = 0
    inputs["token_type_ids"] = torch.zeros_like(inputs["input_ids"])
    return build(tiny_bert, inputs, spec, tmp_path_factory.mktemp("bert"))


def _verify(
    built: Built, request: object, folder: Path
) -> tuple[subprocess.CompletedProcess[str], Path]:
    (folder / "request.json").write_text(json.dumps(request))
    report = folder / "report"
    arguments = [folder / "request.json", built.artifact, built.probe, report]
    process = subprocess.run(
        [sys.executable, "-m", "model_export.verifier", *map(str, arguments)],
        cwd=folder,
        env={"PYTHONPATH": os.pathsep.join(SOURCES), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
    )
    return process, report


def test_a_right_artifact_passes_with_all_three_reports(built: Built, tmp_path: Path) -> None:
    process, report = _verify(built, {"tolerance": {}}, tmp_path)
    assert process.returncode == 0, process.stderr
    document = json.loads((report / "report.json").read_text())
    assert document["passed"] is True and document["failure"] is None
    assert document["tolerance"]["max_rel"] == 1e-4
    assert {(case["component"], case["case"]) for case in document["cases"]} >= {
        ("artifact", "files"),
        ("model", "signature"),
        ("model", "traced"),
        ("model", "batch 1, length +5"),
        ("model", "batch 3, length -2"),
    }
    (case,) = (case for case in document["cases"] if case["case"] == "traced")
    figures = {check["name"]: check["figures"] for check in case["checks"]}
    assert figures.keys() == {"last_hidden_state", "pooler_output"}
    assert figures["last_hidden_state"]["max_rel"] <= 1e-6
    assert (report / "report.txt").read_text().startswith("PASSED: ")
    suite = ElementTree.parse(report / "junit.xml").getroot()[0]
    assert suite.attrib["name"] == "artifact" and suite.attrib["failures"] == "0"
    assert int(suite.attrib["tests"]) == len(document["cases"]) == len(suite)
    assert {case.attrib["classname"] for case in suite} == {"artifact"}


def test_a_verdict_of_failure_is_a_success_of_the_process(built: Built, tmp_path: Path) -> None:
    process, report = _verify(built, {"tolerance": {"cosine": 1.5}}, tmp_path)
    assert process.returncode == 0, process.stderr
    document = json.loads((report / "report.json").read_text())
    assert document["passed"] is False
    assert document["failure"].startswith("`model`, traced: `last_hidden_state` [2, 8, 32] has a ")
    assert document["tolerance"]["cosine"] == 1.5
    assert document["failure"] in (report / "report.txt").read_text().splitlines()[0]
    suite = ElementTree.parse(report / "junit.xml").getroot()[0]
    assert int(suite.attrib["failures"]) == 3
    (first, *_) = suite.iter("failure")
    assert document["failure"].endswith(first.attrib["message"])


def test_an_unknown_bound_ends_the_process_with_one_line(built: Built, tmp_path: Path) -> None:
    process, report = _verify(built, {"tolerance": {"max_relative": 1}}, tmp_path)
    assert process.returncode == 1
    last = process.stderr.strip().splitlines()[-1]
    assert last == "tolerance['max_relative'] is no bound. Did you mean 'max_rel'?"
    assert not report.exists()


def test_a_probe_without_its_tensors_ends_the_process(built: Built, tmp_path: Path) -> None:
    probe = tmp_path / "probe"
    probe.mkdir()
    (probe / "probe.json").write_bytes((built.probe / "probe.json").read_bytes())
    process, _ = _verify(Built(built.artifact, probe), {}, tmp_path)
    assert process.returncode == 1
    last = process.stderr.strip().splitlines()[-1]
    assert last.startswith("The probe's probe.safetensors can't be read (")


def test_a_component_that_the_probe_lacks_fails(built: Built, tmp_path: Path) -> None:
    probe = tmp_path / "probe"
    probe.mkdir()
    document = json.loads((built.probe / "probe.json").read_text())
    (probe / "probe.json").write_text(json.dumps({**document, "graphs": []}))
    (probe / "probe.safetensors").write_bytes((built.probe / "probe.safetensors").read_bytes())
    failure = Built(built.artifact, probe).failure()
    assert failure == "component `model` has no case in the probe: it can't be verified"
