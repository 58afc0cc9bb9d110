"""`collbench topo PRESET`: systems drawn as text and as pictures."""

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner
from matplotlib.backends.backend_agg import FigureCanvasAgg

from collbench import cli
from collbench.errors import UsageError
from collbench.figures.styles import FORMATS
from collbench.figures.system import draw, figure
from collbench.topology import files
from collbench.topology.system import Tier
from collbench.topology.system_text import lines, tiers

PNG, SVG, PDF = b"\x89PNG", b"<?xml", b"%PDF"


def topo(*arguments):
    return CliRunner().invoke(cli.group, ["topo", *arguments], catch_exceptions=False)


def text(system, width=80):
    return "\n".join(lines(system, width))


def flat(shown):
    """Without frames and line breaks."""
    return " ".join(shown.replace("│", " ").split())


@pytest.mark.parametrize("name", files.names())
@pytest.mark.parametrize("width", [40, 63, 80, 200])
def test_no_line_is_wider_than_the_terminal(name, width):
    """Whole, in parts and by the thousand."""
    system = files.load(name)
    for part in (system, system.of(12_500), system.part(1), system.part(system.gpus // 2)):
        drawn = list(lines(part, width))
        assert max(map(len, drawn)) <= min(width, 80)
        frame = [line for line in drawn if line.startswith(("┌", "│", "└"))]
        assert {(len(line), line[-1]) for line in frame} == {(min(width, 80), edge) for edge in "┐│┘"}


def test_a_hundred_thousand_gpus_fold_into_one_node():
    """The page does not grow with the cluster."""
    system = files.load("dgx-h100")
    shown = text(system.of(12_500))
    assert shown.startswith("DGX H100, 12,500 nodes of 8 GPUs: 100,000 GPUs\n")
    assert "\n... x 12,500\n" in shown
    assert len(shown.splitlines()) == len(text(system.of(100)).splitlines())


def test_the_network_is_drawn_with_its_switches_and_what_is_lost_in_them():
    """Leaves as many as the nodes need, the rest of the tiers only if there are several."""
    system = files.load("dgx-h100")
    shown = flat(text(system.of(100)))
    assert "spine joins all leaf switches, 16 paths, adaptive routing" in shown
    assert "leaf 4 switches on each rail, 32 nodes under each, full rate up" in shown
    assert shown.index("spine") < shown.index("leaf 4") < shown.index("node 0")
    narrow = replace(system, tiers=(replace(system.tiers[0], oversubscription=3.0), *system.tiers[1:]))
    assert "oversubscribed 3:1" in flat(text(narrow.of(100)))
    assert [tier.name for tier, _ in tiers(system.of(32))] == ["leaf"]
    assert "leaf" not in text(system)


def test_a_torus_is_drawn_with_its_shape():
    """Without switches."""
    system = replace(files.load("dgx-h100"), tiers=(Tier("torus", 4), Tier("torus", 8)))
    assert "torus 4 x 8 nodes on each rail, each joined to the next" in flat(text(system.of(32)))


def test_a_node_is_drawn_with_rates():
    """GPUs, fabric, sockets and cards."""
    shown = flat(text(files.load("dgx-h100")))
    assert "GPUs 8 x H100 SXM5 (Hopper, sm90)" in shown
    assert (
        "NVSwitch; 18 links from each GPU; 370.8 GB/s each way, 450 in the data sheet; the switches add (NVLS)" in shown
    )
    assert "CPU 1 GPU 4 5 6 7" in shown
    assert "NICs 8 x InfiniBand, 50 GB/s each way; 400 together" in shown


def test_links_from_gpu_to_gpu_are_a_matrix():
    """As `nvidia-smi topo -m` prints them; a list where there is no room."""
    cube = files.load("dgx-1v")
    assert "GPU 3     NV2   NV1   NV2     -     -     -     -   NV1" in text(cube)
    assert "0-3 NV2, 0-4 NV2" in flat(text(cube, 40))


def test_what_is_switched_off_or_refused_is_said():
    """Both explain a slow run."""
    assert "NVLS is off" in flat(text(replace(files.load("dgx-h100"), nvls=False)))
    assert "peer access refused: through the memory of the host" in flat(text(files.load("pcie4-4090")))


def test_network_cards_say_what_they_cannot_do():
    """Where they read the GPUs' memory, which is usual, nothing is said of it."""
    shown = flat(text(files.load("aws-p3dn")))
    assert "NICs 1 x EFA, 12.5 GB/s each way; through the memory of the host" in shown
    perlmutter = flat(text(files.load("perlmutter")))
    assert "NICs 4 x Slingshot, 25 GB/s each way; 100 together" in perlmutter
    assert "memory of the host" not in perlmutter


def test_guesses_are_notes():
    """Of a machine that was discovered."""
    assert "note: assumed: CPUs by Intel" in text(replace(files.load("dgx-h100"), guesses=("CPUs by Intel",)))


def test_the_command_takes_nodes_and_ranks():
    """Whole nodes, or a part of one."""
    assert topo("dgx-h100", "--nodes", "4").output.startswith("DGX H100, 4 nodes of 8 GPUs: 32 GPUs\n")
    assert topo("dgx-h100", "--nodes", "4", "--ranks", "16").output.startswith("DGX H100, 2 nodes of 8 GPUs: 16 GPUs\n")
    assert topo("dgx-h100", "--ranks", "4").output.startswith("DGX H100, 4 GPUs\n")


def test_the_command_takes_a_file(tmp_path):
    """Three sections are enough."""
    path = tmp_path / "mine.toml"
    path.write_text('name = "Mine"\n[gpu]\narch = "sm89"\n[node]\ngpus = 2\nfabric = "pcie"\n')
    assert topo(str(path)).output.startswith("Mine, 2 GPUs\n")


def test_a_system_in_json_has_its_fields():
    """In bytes per second."""
    record = json.loads(topo("dgx-h100", "--nodes", "2", "--json").output)
    assert (record["nodes"], record["gpu_rate"]) == (2, files.load("dgx-h100").gpu_rate)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("dgx-h100", "--on", "cpu"), "--on cpu looks at this machine"),
        (("--nodes", "2"), "--nodes needs a system"),
        (("dgx-h100", "--ranks", "12"), "has no part of 12 ranks; give 1 to 8"),
        (("dgx-h100", "-o", "a.bmp"), r"a.bmp is no picture's name; let it end in .png, .svg, .pdf"),
        (("--on", "cpu", "-o", "a.png"), "the cpu platform has no GPUs to make a system of"),
    ],
)
def test_what_the_command_cannot_do_is_an_error(arguments, message):
    """In one line."""
    with pytest.raises(UsageError, match=message):
        topo(*arguments)


@pytest.mark.parametrize("suffix", FORMATS)
def test_pictures_in_each_format_are_the_same_every_time(tmp_path, suffix):
    """And are what their names say."""
    system = files.load("dgx-1v").of(3)
    first, again = (draw(system, tmp_path / folder / f"a.{suffix}").read_bytes() for folder in "xy")
    assert first == again
    assert first.startswith({"png": PNG, "svg": SVG, "pdf": PDF}[suffix])


@pytest.mark.parametrize("name", files.names())
@pytest.mark.parametrize("nodes", [1, 12_500])
def test_words_stay_inside_their_boxes(name, nodes):
    """And inside the picture: every GPU, the fabric with its rate, the cards, the network."""
    drawn = figure(files.load(name).of(nodes))
    renderer = FigureCanvasAgg(drawn).get_renderer()
    (axes,) = drawn.axes
    edges = drawn.bbox
    boxes = {tuple(patch.get_center().round(6)): patch.get_window_extent(renderer) for patch in axes.patches}
    inside = 0
    for words in axes.texts:
        extent = words.get_window_extent(renderer)
        assert edges.x0 <= extent.x0 <= extent.x1 <= edges.x1, words
        assert edges.y0 <= extent.y0 <= extent.y1 <= edges.y1, words
        box = boxes.get(tuple(round(part, 6) for part in words.get_position()))
        if box:
            inside += 1
            assert box.x0 <= extent.x0 <= extent.x1 <= box.x1, words
            assert box.y0 <= extent.y0 <= extent.y1 <= box.y1, words
    assert inside > files.load(name).gpus


@pytest.mark.parametrize("name", files.names())
def test_a_picture_has_every_gpu_and_what_it_is_called(name):
    """By number, in the first node."""
    system = files.load(name).of(1)
    words = [label.get_text().split("\n")[-1] for label in figure(system).axes[0].texts]
    assert system.title in words
    assert all(f"{gpu}" in words for gpu in range(system.gpus))


def test_a_long_name_is_cut():
    """Whatever the file says."""
    drawn = figure(replace(files.load("dgx-h100"), name="very " * 40 + "long"))
    (title,) = (words for words in drawn.axes[0].texts if words.get_text().startswith("very"))
    assert title.get_window_extent(FigureCanvasAgg(drawn).get_renderer()).x1 < drawn.bbox.x1


def test_the_command_writes_the_picture(tmp_path):
    """Beside the text, and says where."""
    path = tmp_path / "new" / "fabric.png"
    result = topo("gb200-nvl72", "--nodes", "20", "-o", str(path))
    assert path.read_bytes().startswith(PNG)
    assert f"picture: {path}" in result.stderr
    assert "... x 20" in result.stdout


def test_this_machine_can_be_drawn_too(tmp_path, monkeypatch, dgx_h100):
    """Through the system that it maps onto."""
    import sys

    monkeypatch.setitem(sys.modules, "pynvml", dgx_h100)
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    topo("-o", str(tmp_path / "here.svg"))
    assert "8 x NVIDIA H100 80GB HBM3, NVSwitch" in (tmp_path / "here.svg").read_text()
