"""Systems in TOML: what comes along, what a file may say and what not; and the GPU products that they name."""

import copy
import re
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from collbench.errors import UsageError
from collbench.topology import files
from collbench.topology.products import ARCHITECTURES, PRODUCTS, Product
from collbench.topology.system import Fabric, Nics, System, Tier, is_named, product_of
from tests.conftest import ROOT

BASE = {
    "name": "mine",
    "gpu": {"arch": "sm90"},
    "node": {"gpus": 8, "fabric": "nvswitch"},
    "nic": {"per_node": 8, "rate": 50.0, "transport": "ib"},
}
EVERY_KEY = """
name = "Everything"
gpu = { arch = "sm70", name = "V100", tflops = 112, fp8_tflops = 113, memory = 31.5, memory_bw = 850 }
scale = { nodes = 7 }
host = { launch = "torch" }
nccl = { version = "2.27.3", nvls = false, algo = "tree", proto = "ll" }
nic = { per_node = 2, rate = 3.5, transport = "ib", gdr = false, sharp = true }
calibration = { file = "sub/fit.json" }
tier = [
  { name = "leaf", radix = 5, oversubscription = 2, routing = "ecmp", paths = 3, qps = 4 },
  { name = "core" },
]

[node]
gpus = 8
fabric = "hybrid-cube"
gpu_bw = 119
spec_bw = 151.5
nvlinks = 6
p2p = false
multicast = false
cpu = "power"
pcie_gen = 2
pcie_lanes = 8
switches = [[0, 1], [2, 3, 4, 5, 6, 7]]
sockets = 4
inter_socket = 7.5
"""


def parsed(**sections):
    fields = copy.deepcopy(BASE)
    for name, value in sections.items():
        if value is None:
            del fields[name]
        elif isinstance(value, dict) and isinstance(fields.get(name, {}), dict):
            fields[name] = fields.get(name, {}) | value
        else:
            fields[name] = value
    return files.parse(fields, Path("mine.toml"))


RATES = {  # GB/s of a GPU into its fabric and of all cards of a node, as NCCL takes them; whether the switches add
    "dgx-1v": (120, 50, False), "dgx-a100": (240, 200, False), "dgx-h100": (370.8, 400, True),
    "gb200-nvl72": (721.8, 3600, True), "gh200-quad": (370.8, 100, False), "h100-nvl": (247.2, 200, False),
    "pcie4-4090": (24, 12.5, False), "perlmutter": (240, 100, False), "dgx-spark": (48, 25, False),
}  # fmt: skip


def test_every_preset_loads_and_has_a_network():
    systems = {name: files.load(name) for name in files.names()}
    for name, system in systems.items():
        assert system.of(3).ranks == 3 * system.gpus, name
        assert system.tiers, name
        assert 0.7 * system.spec_rate < system.gpu_rate < system.spec_rate, name
        assert 1e9 < system.nics.rate <= 100e9, name
        assert re.search(ARCHITECTURES[system.arch].products, system.gpu, re.IGNORECASE), name
        path = files.FOLDER / f"{name}.toml"
        fields = tomllib.loads(path.read_text())
        fields["node"].pop("gpu_bw", None)
        assert files.parse(fields, path).gpu_rate == pytest.approx(system.gpu_rate), name
    assert {system.fabric for system in systems.values()} == set(get_args(Fabric))
    for name, (rate, nics, adds) in RATES.items():
        system = systems[name]
        assert system.gpu_rate == pytest.approx(rate * 1e9), name
        assert system.nics.rate * system.nics.per_node == pytest.approx(nics * 1e9), name
        assert system.multicast == adds, name


def test_a_system_that_is_written_is_read_again():
    assert (parsed().nics.gdr, parsed(nic={"gdr": False}).nics.gdr) == (True, False)
    systems = [files.load(name) for name in files.names()]
    parts = [system.of(2).part(ranks) for system in systems for ranks in (1, max(1, system.gpus // 2), 2 * system.gpus)]
    for system in (parsed(), parsed(nic={"gdr": False}), *parts):
        again = files.parse(tomllib.loads(files.to_toml(system)), Path("written.toml"))
        rates = {name: getattr(again, name) for name in ("gpu_rate", "spec_rate")}
        assert list(rates.values()) == pytest.approx([system.gpu_rate, system.spec_rate]), system.title
        between = system.socket_rate if system.sockets > 1 else 0.0
        assert again == replace(system, socket_rate=between, **rates), system.title


def test_every_key_arrives(tmp_path):
    (tmp_path / "every.toml").write_text(EVERY_KEY)
    found = files.load(str(tmp_path / "every.toml"))
    assert found == System(
        "Everything", "sm70", 8, "hybrid-cube", 119e9, p2p=False, cpu="power", nics=Nics(2, 3.5e9, "ib", False, True),
        tiers=(Tier("leaf", 5, 2, "ecmp", 3, 4), Tier("core", 0, 1, "adaptive", 1, 1)), nodes=7, launch="torch",
        nccl="2.27.3", calibration=str(tmp_path / "sub/fit.json"), gpu="V100", flops=112e12, flops_fp8=113e12,
        memory=31.5 * 2**30, memory_rate=850e9, nvlinks=6, spec_rate=151.5e9, pcie_generation=2, pcie_lanes=8,
        switches=((0, 1), (2, 3, 4, 5, 6, 7)), per_socket=2, socket_rate=7.5e9, nvls=False, algorithm="tree",
        protocol="ll",
    )  # fmt: skip
    page = (ROOT / "docs" / "systems.md").read_text()
    for name, table in files.TABLES.items():
        # The rest of a calibration is what `collbench predict --fit` writes.
        for key in ["file"] if name == "calibration" else table.__struct_encode_fields__:
            assert re.search(rf"\b{key} = ", EVERY_KEY), key
            assert f"{key}`" in page, key


def test_an_architecture_and_a_fabric_say_the_rest():
    found = parsed()
    assert (found.nvlinks, found.pcie_generation, found.pcie_lanes) == (18, 5, 16)
    assert found.gpu_rate == pytest.approx(370.8e9)
    assert found.spec_rate == pytest.approx(450e9)
    assert found.multicast
    assert not parsed(gpu={"arch": "sm80"}).multicast
    pcie = parsed(node={"fabric": "pcie", "pcie_lanes": 8})
    assert (pcie.gpu_rate, pcie.nvlinks, pcie.multicast) == (pytest.approx(24e9), 0, False)
    assert parsed(node={"cpu": "amd", "sockets": 2}).between_sockets == 64e9
    assert parsed(node={"cpu": "amd", "sockets": 2, "inter_socket": 30}).between_sockets == 30e9


IMPOSSIBLE = (
    ({"nodes": 4}, r"mine\.toml: nodes is no key; choose from: name, gpu, node, nic, tier"),
    ({"node": {"gpu": 8}}, r"\[node\] gpu is no key; choose from: gpus, fabric, gpu_bw"),
    ({"gpu": {"arch": "h100"}}, r"\[gpu\] arch must be one of: sm60, sm70"),
    ({"node": {"gpus": 0}}, r"\[node\] gpus must be a whole number from 1 to 1024"),
    ({"node": {"gpus": True}}, r"gpus must be a whole number"),
    ({"node": {"gpu_bw": 370.8e9}}, r"gpu_bw must be a number from 0.001 to 5000 in GB/s of one direction"),
    ({"node": {"gpu_bw": float("nan")}}, r"gpu_bw must be a number"),
    ({"nic": {"per_node": 33}}, r"per_node = 33 is impossible; at most 4 for each GPU"),
    ({"nic": {"sharp": True, "transport": "efa"}}, r"sharp = true is impossible over efa; SHARP needs InfiniBand"),
    ({"nic": {"transport": "pigeon"}}, r"transport must be one of: ib, roce, slingshot, efa, tcpx, tcp"),
    ({"nic": {"gdr": "no"}}, r"\[nic\] gdr must be true or false"),
    ({"nic": 8}, r"nic must be a table; write \[nic\]"),
    ({"tier": [{"name": "a", "oversubscription": 4}]}, r"oversubscription = 4 of 'a', the topmost .*take the key out"),
    ({"tier": [3]}, r"tier must be a table; write \[\[tier\]\]"),
    ({"tier": [{}]}, r"\[\[tier\]\] name is missing; it must be a text"),
    ({"tier": [{"name": "a"}, {"name": "b"}]}, r"\[\[tier\]\] 'a' needs a radix"),
    ({"gpu": None}, r"\[gpu\] is missing; its keys are: arch, name"),
    ({"node": {"switches": [[0, "a"]]}}, r"switches must be lists of GPU numbers, such as"),
    ({"node": {"switches": [[0, 1], [1, 2]]}}, r"switches must name each GPU from 0 to 7 once"),
    ({"nic": None, "scale": {"nodes": 2}}, r"\[scale\] nodes = 2 needs network cards; add \[nic\]"),
    ({"nic": None, "tier": [{"name": "leaf"}]}, r"\[\[tier\]\] joins nodes, .*; add \[nic\]"),
    ({"node": {"multicast": True, "fabric": "mesh", "gpus": 4}}, r"multicast = true is impossible here"),
    ({"nccl": {"version": "two"}}, r'version must be a text, such as "2.29"'),
    ({"gpu": {"arch": "sm89"}}, r"fabric = 'nvswitch' is impossible: sm89 has no NVLink"),
    ({"node": {"fabric": "pcie", "nvlinks": 4}}, r"nvlinks needs a fabric of NVLinks"),
    ({"node": {"fabric": "mesh", "gpus": 8}}, r"nvlinks = 18 cannot be dealt evenly to the 7 others"),
    ({"node": {"fabric": "hybrid-cube"}}, r"nvlinks = 18 is no hybrid-cube of 8 GPUs; it is 8 GPUs with 6 NVLinks"),
    ({"node": {"fabric": "nvlink-pairs", "gpus": 1}}, r"gpus = 1 cannot be nvlink-pairs"),
    ({"node": {"sockets": 9}}, r"sockets = 9 is impossible; at most one for each GPU"),
    ({"name": ""}, r"name must be a text"),
)


def test_what_cannot_be_is_one_line_that_names_the_key():
    for sections, message in IMPOSSIBLE:
        with pytest.raises(UsageError, match=message) as caught:
            parsed(**sections)
        assert str(caught.value).startswith("mine.toml: ")
        assert "\n" not in str(caught.value)


def test_no_key_takes_a_table():
    for name, table in files.TABLES.items():
        for key in table.__struct_encode_fields__:
            wrong = BASE.get(name, {"name": "leaf"} if name == "tier" else {}) | {key: {"a": 1}}
            with pytest.raises(UsageError, match=rf"{name}\]+ {key} must be "):
                parsed(**{name: [wrong] if name == "tier" else wrong})


HOPPER = System("any", "sm90", 8, "nvswitch", 370e9)
NAMES = (  # as NVIDIA's driver says them
    "Tesla P100-PCIE-16GB", "Tesla V100-SXM2-16GB", "Tesla V100-SXM3-32GB", "Tesla T4", "NVIDIA GeForce RTX 2080 Ti",
    "NVIDIA A100-SXM4-40GB", "NVIDIA A100 80GB PCIe", "NVIDIA A800-SXM4-80GB", "NVIDIA A40", "NVIDIA A10",
    "NVIDIA GeForce RTX 3090", "NVIDIA GeForce RTX 4090", "NVIDIA L40", "NVIDIA L40S", "NVIDIA L4", "NVIDIA H100 NVL",
    "NVIDIA H100 PCIe", "NVIDIA H100 80GB HBM3", "NVIDIA H800", "NVIDIA H200", "NVIDIA GH200 480GB", "NVIDIA H20",
    "NVIDIA B200", "NVIDIA GB200", "NVIDIA GB300", "NVIDIA B300 SXM6 AC", "NVIDIA GB10", "NVIDIA GeForce RTX 5090",
    "NVIDIA RTX PRO 6000 Blackwell Server Edition", "AMD Instinct MI300X", "AMD Instinct MI325X", "AMD Instinct MI355X",
)  # fmt: skip


def test_no_product_hides_behind_another_and_eight_bits_are_twice_sixteen_or_the_same():
    first = set()
    for name in NAMES:
        system = replace(HOPPER, gpu=name)
        assert is_named(system), name
        product = product_of(system)
        has_eight_bits = product_of(replace(system, flops=1e12)).flops_fp8 > 1e12
        assert has_eight_bits == (product.flops_fp8 == pytest.approx(2 * product.flops, rel=0.02)), name
        first.add(next(pattern for pattern, _ in PRODUCTS if re.search(pattern, name, re.IGNORECASE)))
    assert first == {pattern for pattern, _ in PRODUCTS}


def test_tf32_has_half_the_rate_of_sixteen_bits_and_before_ampere_that_of_thirty_two():
    for name, tera in (("Tesla V100-SXM2-16GB", 15.7), ("A100-SXM4-40GB", 156), ("NVIDIA H100 80GB HBM3", 494.7)):
        assert product_of(replace(HOPPER, gpu=name)).flops_tf32 == pytest.approx(tera * 1e12, rel=0.025), name
    assert product_of(replace(HOPPER, gpu="A100", flops=250e12)).flops_tf32 == 125e12
    assert product_of(replace(HOPPER, gpu="V100", flops=112e12)).flops_tf32 == 15.7e12


def test_an_architecture_alone_has_a_product_and_so_has_an_unknown_name():
    for arch in ARCHITECTURES:
        for name in ("", "Future 9000"):
            system = replace(HOPPER, arch=arch, gpu=name)
            assert not is_named(system), arch
            product = product_of(system)
            assert 0 < product.flops <= product.flops_fp8 <= 2.1 * product.flops, arch
            assert (product.flops_fp32 > 0) == (arch in ("sm60", "sm70", "sm75")), arch
            assert 2**33 < product.memory < 2**40, arch
            assert 1e11 < product.memory_rate < 1e13, arch


def test_what_a_file_says_replaces_the_data_sheet():
    sheet = product_of(replace(HOPPER, gpu="NVIDIA H100 80GB HBM3"))
    assert (sheet.flops, sheet.memory, sheet.memory_rate) == (pytest.approx(989.4e12), 80 * 2**30, 3.35e12)
    said = replace(HOPPER, gpu="H100", flops=1e15, memory=1e11, memory_rate=1e12)
    assert product_of(said) == Product(1e15, 2e15, 1e11, 1e12)
    assert product_of(replace(said, flops_fp8=3e15)).flops_fp8 == 3e15
    assert product_of(replace(said, gpu="A100", arch="sm80")).flops_fp8 == 1e15
