"""GPU products: every record is reached, every preset names one, and a file has the last word."""

import re
from dataclasses import replace

import pytest

from collbench.topology import files
from collbench.topology.architectures import ARCHITECTURES
from collbench.topology.products import PRODUCTS, Product, is_named, product_of
from collbench.topology.system import System

SYSTEM = System("any", "sm90", 8, "nvswitch", 370e9)
NAMES = {  # as NVIDIA's driver says them: TFLOP/s on 16 bits and GiB, by data sheets
    "Tesla P100-PCIE-16GB": (18.7, 16), "Tesla V100-SXM2-16GB": (125, 16), "Tesla V100-SXM3-32GB": (125, 32),
    "Tesla T4": (65, 16), "NVIDIA GeForce RTX 2080 Ti": (53.8, 11), "NVIDIA A100-SXM4-40GB": (312, 40),
    "NVIDIA A100 80GB PCIe": (312, 80), "NVIDIA A800-SXM4-80GB": (312, 80), "NVIDIA A40": (149.7, 48),
    "NVIDIA A10": (125, 24), "NVIDIA GeForce RTX 3090": (71, 24), "NVIDIA GeForce RTX 4090": (165.2, 24),
    "NVIDIA L40": (181, 48), "NVIDIA L40S": (362, 48), "NVIDIA L4": (121, 24), "NVIDIA H100 NVL": (835, 94),
    "NVIDIA H100 PCIe": (756, 80), "NVIDIA H100 80GB HBM3": (989.4, 80), "NVIDIA H800": (989.4, 80),
    "NVIDIA H200": (989.4, 141), "NVIDIA GH200 480GB": (989.4, 96), "NVIDIA H20": (148, 96),
    "NVIDIA B200": (2250, 180), "NVIDIA GB200": (2500, 186), "NVIDIA GB300": (2500, 270),
    "NVIDIA GeForce RTX 5090": (209.5, 32), "NVIDIA RTX PRO 6000 Blackwell Server Edition": (503.8, 96),
}  # fmt: skip


def test_a_name_is_known_by_its_data_sheet_and_no_record_hides_behind_another():
    first = set()
    for name, promised in NAMES.items():
        system = replace(SYSTEM, gpu=name)
        assert is_named(system), name
        product = product_of(system)
        assert (product.flops / 1e12, product.memory / 2**30) == pytest.approx(promised), name
        first.add(next(p for p, _ in PRODUCTS if re.search(p, name, re.IGNORECASE)))
    assert first == {pattern for pattern, _ in PRODUCTS}


def test_every_preset_has_a_product_of_its_architecture():
    for name in files.names():
        system = files.load(name)
        assert is_named(system), name
        assert re.search(ARCHITECTURES[system.arch].products, system.gpu, re.IGNORECASE), name


def test_an_architecture_alone_has_a_product_and_so_has_an_unknown_name():
    for arch in ARCHITECTURES:
        for name in ("", "Future 9000"):
            system = replace(SYSTEM, arch=arch, gpu=name)
            assert not is_named(system), arch
            product = product_of(system)
            assert 0 < product.flops <= product.flops_fp8 <= 2.1 * product.flops, arch
            assert 2**33 < product.memory < 2**40, arch
            assert 1e11 < product.memory_rate < 1e13, arch


def test_what_a_file_says_replaces_the_data_sheet_and_eight_bits_are_twice_sixteen():
    said = replace(SYSTEM, gpu="H100", flops=1e15, memory=1e11, memory_rate=1e12)
    assert product_of(said) == Product(1e15, 2e15, 1e11, 1e12)
    assert product_of(replace(said, flops_fp8=3e15)).flops_fp8 == 3e15
    assert product_of(replace(said, gpu="A100", arch="sm80")).flops_fp8 == 1e15
    assert product_of(replace(SYSTEM, gpu="H100", memory=5.0)).flops_fp8 == pytest.approx(1978.9e12)
