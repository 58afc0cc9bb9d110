"""Plan a training run: layouts that fit, how long a step takes, what holds it up, and what it costs.

For example:
  collbench train --model gpt3-175b --on dgx-a100 --gpus 1024 --batch 1536
  collbench train --model llama3-8b --on dgx-h100 --gpus 64 --batch 512 --price 2.5
"""

from typing import Any

import click

from collbench.cli.options import FORMATS, PATH

_OPTIONS = [
    click.Option(
        ["--model"],
        default="llama3-8b",
        metavar="NAME|FILE.toml|KEY=N,...",
        help="A preset, a file, or dimensions: layers=32,hidden=4096,heads=32.",
    ),
    click.Option(["--on"], default="dgx-h100", metavar="SYSTEM|FILE.toml|RUN", help="What it is trained on."),
    click.Option(["-g", "--gpus"], type=int, help="How many GPUs.  [default: 64; of a run its ranks]"),
    click.Option(["--batch"], type=int, default=512, help="Samples of a step, all GPUs together."),
    click.Option(["--sequence"], type=int, help="Tokens of a sample.  [default: the model's]"),
    click.Option(["--precision"], default="bf16", metavar="bf16|fp8", help="Of matrix products."),
    click.Option(["--optimiser"], default="adam", metavar="NAME", help="adam, adam8bit, adam-bf16 or sgd."),
    click.Option(["--gradients"], default="fp32", metavar="fp32|bf16", help="As they are added up and sent."),
    click.Option(
        ["--stack"],
        metavar="NAME",
        help="Software: modern, megatron-2022, megatron-2021, deepspeed-2021.  [default: of the GPUs' published runs]",
    ),
    click.Option(["--layout"], metavar="WORDS", help='What is fixed, such as "tp8 pp16 mb1 full zero1".'),
    click.Option(["--top"], type=click.IntRange(1, 100), default=10, help="Layouts to show."),
    click.Option(
        ["--anchor"], metavar="STEP|MFU%[,...]", help="A measured step: 32s, 45%, 32s,gpus=1024,layout=tp8 pp16."
    ),
    click.Option(["--loader"], type=float, metavar="SAMPLES/S", help="How fast samples are read."),
    click.Option(["--scale"], metavar="N..N", help="Also on these numbers of GPUs: 8..8192 doubles."),
    click.Option(["--compare-interconnects"], metavar="SYSTEM,...", help="Also on these systems."),
    click.Option(["--price"], type=float, metavar="PRICE", help="Of a GPU's hour: what the run costs, by its GPUs."),
    click.Option(["--deadline"], metavar="30d|12h", help="With --price: the cheapest number of GPUs in time."),
    click.Option(["--tokens"], metavar="N", help="Of the whole run: 300B.  [default: 20 a parameter at work]"),
    click.Option(
        ["--up-or-out"], multiple=True, metavar="SYSTEM=PRICE", help="With --price: the same money an hour, elsewhere."
    ),
    click.Option(["--noise-scale"], type=float, default=0.0, metavar="SAMPLES", help="The gradient noise scale."),
    click.Option(["--reserve"], type=float, default=6.0, help="Per cent of the memory that fragments make useless."),
    click.Option(["--noise"], type=float, default=0.22, help="Per cent by which GPUs' speeds differ (deviation)."),
    click.Option(["--tflops"], type=float, help="Of a GPU, dense, on 16 bits.  [default: its data sheet's]"),
    click.Option(["--memory"], type=float, help="GiB of a GPU.  [default: its data sheet's]"),
    click.Option(["--fitted"], is_flag=True, help="Of a run: the fit to its curves instead of its points."),
    click.Option(["--as", "machine"], metavar="SYSTEM|FILE.toml", help="What machine the run is of."),
    click.Option(["--format", "formats"], type=FORMATS, multiple=True, default=["png"]),
    click.Option(["--out"], type=PATH, help="Folder to make for run file and pictures."),
]


@click.command(context_settings={"show_default": True}, params=_OPTIONS)
def command(**options: Any) -> int:
    """Plan a training run: layouts that fit, how long a step takes, what holds it up, and what it costs.

    Every way to deal the model out (data, tensor, pipeline, context, expert and sequence parallelism, ZeRO, FSDP,
    recomputation, offloading) is tried against the memory of a GPU, and timed by curves of collectives: modelled for a
    described system, measured or fitted for a run.  Nothing runs.
    """
    from collbench.cli._train import TrainOptions, run_train

    return run_train(TrainOptions(**options))
