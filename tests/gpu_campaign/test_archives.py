"""What a campaign gives back to whoever lent the machine: whole at any time, and enough to go on with elsewhere."""

import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from tests.gpu import archives, campaign
from tests.gpu.archives import CAMPAIGN, KERNELS, Back
from tests.gpu_campaign.test_stages import a_campaign, ran, toy


@pytest.fixture(autouse=True)
def kernels(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A cache with a kernel."""
    folder = tmp_path / "cache"
    folder.mkdir()
    (folder / "one.cubin").write_text("one")
    monkeypatch.setenv("CUPY_CACHE_DIR", str(folder))
    monkeypatch.setattr(campaign, "STAGES", tuple(toy(name, tmp_path) for name in ("good", "bad", "skipping")))
    return folder


def names(archive: Path) -> set[str]:
    with tarfile.open(archive) as packed:
        return {member.name for member in packed}


def test_a_campaign_goes_on_elsewhere_with_what_it_gave_back(tmp_path: Path) -> None:
    """Unpacked on another machine, what has passed is not run again, and kernels are not compiled again."""
    a_campaign(tmp_path, "good", "bad", out=tmp_path / "back").run()
    there = tmp_path / "there"
    for archive in (CAMPAIGN, KERNELS):
        with tarfile.open(tmp_path / "back" / archive) as packed:
            packed.extractall(there, filter="data")
    assert (there / "cache" / "one.cubin").read_text() == "one"
    assert (there / "out" / "bad" / "log.txt").read_text()
    (tmp_path / "ran").unlink()
    again = a_campaign(tmp_path, "good", "bad", "skipping", out=tmp_path / "back")
    replace(again, folder=there / "out").run()
    assert ran(tmp_path) == ["skipping", "bad"]
    assert "1 failed, 1 passed, 1 not possible here" in (tmp_path / "back" / "summary.md").read_text()


def test_after_every_stage_all_until_then_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that who is killed in the next one loses nothing."""
    seen: list[set[str]] = []
    out, usual = tmp_path / "back", Back.bring

    def bring(back: Back) -> None:
        usual(back)
        seen.append({name for name in names(out / CAMPAIGN) if name.endswith("result.json")})

    monkeypatch.setattr(Back, "bring", bring)
    a_campaign(tmp_path, "good", "bad", out=out).run()
    assert seen == [{"out/good/result.json"}, {"out/good/result.json", "out/bad/result.json"}]
    assert {path.name for path in out.iterdir()} == {"summary.md", CAMPAIGN, KERNELS}


def test_what_can_be_made_again_stays_behind(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    for path in ("nccl-tests/scratch/source/a.cu", "nccl-tests/run/run.jsonl", "nccl-tests/.result.json", "summary.md"):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("")
    (folder / "link").symlink_to("/etc/passwd")
    Back(tmp_path / "back", folder, tmp_path / "cache").bring()
    assert names(tmp_path / "back" / CAMPAIGN) == {"out/nccl-tests/run/run.jsonl", "out/summary.md"}


def test_kernels_are_packed_again_only_if_there_are_others(tmp_path: Path, kernels: Path) -> None:
    (tmp_path / "out").mkdir()
    back, archive = Back(tmp_path / "back", tmp_path / "out", kernels), tmp_path / "back" / KERNELS
    back.bring()
    archive.unlink()
    back.bring()
    assert not archive.exists()
    (kernels / "two.cubin").write_text("two")
    back.bring()
    assert names(archive) == {"cache/one.cubin", "cache/two.cubin"}


def test_an_archive_that_would_be_too_large_has_the_small_files_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(archives, "MOST", 2**18)
    files = [tmp_path / name for name in ("large", "small")]
    for path, size in zip(files, (2**18, 10), strict=True):
        path.write_bytes(bytes(size))
    archives.pack(tmp_path / CAMPAIGN, tmp_path, files)
    assert names(tmp_path / CAMPAIGN) == {f"{tmp_path.name}/small"}
    assert "campaign.tar.gz has no room for 1 of 2 files" in capsys.readouterr().out


def test_without_a_folder_to_bring_back_nothing_is_packed(tmp_path: Path) -> None:
    a_campaign(tmp_path, "good").run()
    assert not list(tmp_path.rglob("*.tar.*"))
