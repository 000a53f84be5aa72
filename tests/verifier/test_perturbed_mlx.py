"""What is verified of an artifact that this platform can't run, and how the verdict says so."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from executorch.runtime import Runtime

from exporter.backends.tiny_models import (
    generation_spec,
    left_padded,
    make_spec,
    tiny_bert,
)
from model_export.exporter.backend import load_backend
from model_export.runtime.errors import ArtifactError
from model_export.runtime.graph import open_graph
from model_export.runtime.graphs.pte_delegates import Delegation
from model_export.verifier.report_files import write_reports
from model_export.verifier.structure.executorch import misdelegated
from verifier.artifacts import Built, build
from verifier.wrong_modules import one_layer_decoder

pytestmark = pytest.mark.skipif(
    Runtime.get().backend_registry.is_available("MLXBackend"), reason="runs MLX: all is verified"
)
_INPUTS = left_padded(2, 8, 3)
_SPEC = generation_spec("executorch", {"backend": "mlx"})
_UNEXECUTED = "execution not verified on this platform: its ExecuTorch has no MLXBackend"


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> Built:
    load_backend("executorch").check(_SPEC)
    return build(one_layer_decoder, _INPUTS, _SPEC, tmp_path_factory.mktemp("mlx"))


def test_the_right_artifact_passes_unexecuted(right: Built) -> None:
    verdict = right.verify()
    assert verdict.failure is None
    assert verdict.unexecuted == _UNEXECUTED
    assert [case.case for case in verdict.cases] == ["files", "probe", "signature"]
    assert "delegation" in {check.name for case in verdict.cases for check in case.checks}


def test_each_report_says_that_nothing_was_executed(right: Built, tmp_path: Path) -> None:
    write_reports(right.verify(), tmp_path)
    assert json.loads((tmp_path / "report.json").read_text())["unexecuted"] == _UNEXECUTED
    assert f"NOT EXECUTED: {_UNEXECUTED}" in (tmp_path / "report.txt").read_text().splitlines()
    (suite,) = ElementTree.parse(tmp_path / "junit.xml").getroot()
    assert (suite.get("tests"), suite.get("skipped")) == ("4", "1")
    assert [item.get("message") for item in suite.iter("skipped")] == [_UNEXECUTED]


def test_an_operator_that_is_left_over_fails(tmp_path: Path) -> None:
    # Without `token_type_ids` BERT gathers them, which MLX's partitioner doesn't know.
    spec = make_spec("executorch", {"backend": "mlx", "dynamic": True})
    wrong = build(tiny_bert, _INPUTS, spec, tmp_path)
    assert wrong.failure() == (
        "`model`, signature: aten::gather is left over outside of MLXBackend"
    )


@pytest.mark.parametrize(
    ("delegates", "operators", "flaw"),
    [
        (("MLXBackend",), (), None),
        ((), ("aten::add",), "the graph goes to no delegate (expected MLXBackend)"),
        (("XnnpackBackend",), (), "the graph goes to XnnpackBackend (expected MLXBackend)"),
        (("MLXBackend",) * 2, (), "the graph is cut into 2 delegates of MLXBackend (expected 1)"),
    ],
)
def test_a_graph_that_goes_elsewhere_fails(
    delegates: tuple[str, ...], operators: tuple[str, ...], flaw: str | None
) -> None:
    assert misdelegated("mlx", Delegation(delegates, operators)) == flaw


def test_a_size_that_the_manifest_gets_wrong_fails(right: Built, tmp_path: Path) -> None:
    wrong = right.copy(tmp_path)
    record = wrong.record("decode")
    bounds = {**record.bounds, "input_ids.0": (0, 5)}
    wrong.replace_record(replace(record, bounds=bounds))
    assert "input `input_ids` is [4, " in wrong.failure()


def test_loading_it_says_where_it_runs(right: Built) -> None:
    with pytest.raises(ArtifactError, match=r"decode.pte runs on MLXBackend, .*on Apple Silicon"):
        open_graph(right.artifact, "executorch", right.record("decode"))
