"""Jobs that wait for jobs as a picture: layers, arrows, and a file that is sound XML with the same bytes each time."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from hal.cli.graph_svg import Arrow, Box, Graph, layers_of, svg_of

NAME = "{http://www.w3.org/2000/svg}"
ARROWS = st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)).filter(lambda pair: pair[0] < pair[1]), max_size=30)


def arrows_of(pairs: list[tuple[int, int]]) -> tuple[Arrow, ...]:
    """Job numbers to arrows, each once."""
    return tuple(sorted({Arrow(str(before), str(after), "afterok") for before, after in pairs}))


@given(ARROWS)
def test_every_job_stands_behind_all_that_it_waits_for(pairs: list[tuple[int, int]]) -> None:
    """Each job once; arrows lead to a later layer; who waits for nobody stands in the first."""
    jobs = [str(number) for number in range(12)]
    layers = layers_of(jobs, arrows_of(pairs))
    assert sorted(job for layer in layers for job in layer) == sorted(jobs)
    place = {job: at for at, layer in enumerate(layers) for job in layer}
    assert all(place[str(before)] < place[str(after)] for before, after in pairs)
    assert {job for job in jobs if not any(after == int(job) for _, after in pairs)} == set(layers[0])


def test_layers_are_ordered_so_that_parallel_chains_do_not_cross() -> None:
    """Three chains, whose second jobs come in another order, stay straight."""
    layers = layers_of(["1", "2", "3", "6", "5", "4"], arrows_of([(1, 4), (2, 5), (3, 6)]))
    assert [[int(job) for job in layer] for layer in layers] == [[1, 2, 3], [4, 5, 6]]


def test_the_picture_is_sound_and_names_every_job() -> None:
    """Names with marks that mean something to XML, an alternative drawn dashed, another kind written at its arrow."""
    boxes = {
        "1": Box("1", "a<b & c", "succeeded"),
        "2": Box("2", "x" * 60, "running"),
        "3": Box("3", "last", "pending"),
    }
    graph = Graph(boxes, (Arrow("1", "3", "afterany", True), Arrow("2", "3", "afterok")), more=True)
    text = svg_of(graph, "3")
    assert text == svg_of(graph, "3")
    picture = ET.fromstring(text)
    said = [part.text or "" for part in picture.iter(f"{NAME}text")]
    assert {"1 a<b & c", "succeeded", f"2 {'x' * 15}…", "3 last", "afterany", "the nearest 300 jobs"} <= set(said)
    paths = [part for part in picture.iter(f"{NAME}path") if part.get("marker-end")]
    assert [bool(path.get("stroke-dasharray")) for path in paths] == [True, False]
    strong = [part for part in picture.iter(f"{NAME}rect") if part.get("stroke-width") == "2"]
    assert len(strong) == 1
