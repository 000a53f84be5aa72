"""The page of the support table."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest
from support.measurement import REFUSED, VERIFIED, WRONG, Measurement
from support.table import FORMATS, IncompleteTable, read_measurements, write_table


def measured(outcome: str, reason: str = "", **changes: str) -> Measurement:
    place = {"family": "BERT", "mode": "forward", "export_format": "onnx", **changes}
    return Measurement(**place, outcome=outcome, reason=reason)


def row(page: str, family: str) -> list[str]:
    (line,) = (line for line in page.splitlines() if line.startswith(f"| {family} |"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_family_has_a_row_and_each_format_and_mode_a_column() -> None:
    modes = [measured(VERIFIED, mode=mode) for mode in ("forward", "growing cache")]
    page = write_table([*modes, measured(VERIFIED, family="ViT")])
    assert len(row(page, "BERT")) == len(row(page, "ViT")) == 1 + 2 * len(FORMATS)
    assert row(page, "family")[1:3] == [f"{FORMATS[0]}: forward", f"{FORMATS[0]}: growing cache"]


def test_a_cell_says_what_was_measured_at_its_place() -> None:
    page = write_table([measured(VERIFIED), measured(REFUSED, export_format="dynamo")])
    cells = dict(zip(FORMATS, row(page, "BERT")[1:], strict=True))
    assert cells == {"dynamo": "refused", "onnx": "yes", "openvino": "", "executorch": ""}


def test_equal_reasons_share_a_note_and_say_nothing_of_the_machine() -> None:
    page = write_table(
        [
            measured(WRONG, "`model`: no file /tmp/a1/b/graph.onnx here"),
            measured(WRONG, "`model`: no file /tmp/c2/d/graph.onnx here", family="ViT"),
            measured(REFUSED, "something | else", family="Llama"),
        ]
    )
    assert row(page, "BERT")[1 + FORMATS.index("onnx")] == "wrong (1)"
    assert row(page, "ViT")[1 + FORMATS.index("onnx")] == "wrong (1)"
    assert "1. `model`: no file graph.onnx here\n2. something \\| else" in page


def test_quantizers_have_a_table_of_their_own_where_they_were_measured() -> None:
    page = write_table(
        [
            measured(VERIFIED),
            measured(VERIFIED, family="ViT"),
            measured(WRONG, "`model`: off", quantizer="NNCF int8"),
            measured(REFUSED, "`model`: off", quantizer="PT2E", export_format="dynamo"),
        ]
    )
    plain, quantized = page.split("## Quantized")
    assert "NNCF" not in plain
    assert row(quantized.rpartition("\n\n")[0], "family") == [
        "family",
        "dynamo: PT2E",
        "onnx: NNCF int8",
    ]
    assert row(quantized, "BERT") == ["BERT", "refused (1)", "wrong (1)"]
    assert "| ViT |" not in quantized
    assert page.count("1. `model`: off") == 1


def documents(*measured_families: str) -> dict[str, list[dict[str, Any]]]:
    """A document each family, as its process writes it."""
    return {
        export_format: [
            {
                "families": ["BERT", "ViT"],
                "measurements": [
                    asdict(measured(VERIFIED, family=family, export_format=export_format))
                ],
            }
            for family in measured_families
        ]
        for export_format in FORMATS
    }


def test_families_come_in_their_own_order_whatever_the_names_of_the_files() -> None:
    found = read_measurements(documents("ViT", "BERT"))
    assert [item.family for item in found] == ["BERT", "ViT"] * len(FORMATS)


def test_a_family_that_was_not_measured_is_missed() -> None:
    with pytest.raises(IncompleteTable, match=r"Not measured in dynamo: ViT\."):
        read_measurements(documents("BERT"))


def test_a_format_that_was_not_measured_is_missed() -> None:
    with pytest.raises(IncompleteTable, match="onnx: any family"):
        read_measurements({**documents("BERT", "ViT"), "onnx": []})
