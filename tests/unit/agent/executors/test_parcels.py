"""What a user loses when files sent by content go wrong: another kernel measured, or a file written out of place."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.executors.parcels import BadParcel, Parcel, digest, pack, unpack


def test_a_file_and_a_folder_come_out_as_they_went_in(tmp_path: Path) -> None:
    (tmp_path / "kernel.so").write_bytes(b"\x7fELF\0")
    folder = tmp_path / "artifact"
    (folder / "cache" / "a").mkdir(parents=True)
    (folder / "cache" / "a" / "k.cubin").write_bytes(b"code")
    (folder / "record.json").write_text("{}")
    for sent in (tmp_path / "kernel.so", folder):
        parcel, contents = pack(sent)
        again = Parcel.model_validate_json(parcel.model_dump_json())
        place = unpack(again, contents.__getitem__, tmp_path / "store")
        assert place.name == sent.name
        assert pack(place) == (parcel, contents)


def test_equal_parcels_are_written_once(tmp_path: Path) -> None:
    (tmp_path / "kernel.so").write_bytes(b"one")
    parcel, contents = pack(tmp_path / "kernel.so")
    first = unpack(parcel, contents.__getitem__, tmp_path / "store")

    def refuse(name: str) -> bytes:
        raise AssertionError("fetched again")

    assert unpack(parcel, refuse, tmp_path / "store") == first


def test_contents_that_are_not_those_of_their_digest_are_refused(tmp_path: Path) -> None:
    parcel = Parcel(name="kernel.so", files={"kernel.so": digest(b"mine")})
    with pytest.raises(BadParcel, match="came damaged"):
        unpack(parcel, lambda name: b"another", tmp_path / "store")
    assert not (tmp_path / "store" / parcel.key).exists()


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("kernel.so", "../kernel.so"),
        ("kernel.so", "/etc/passwd"),
        ("a", "a/../../b"),
        ("a", "b/c"),
        ("..", "../x"),
        ("", ""),
    ],
)
def test_a_name_never_leads_out_of_its_parcel(tmp_path: Path, name: str, file: str) -> None:
    with pytest.raises(BadParcel):
        unpack(Parcel(name=name, files={file: digest(b"x")}), lambda _: b"x", tmp_path / "store")
    assert [p.name for p in tmp_path.rglob("*") if p.is_file()] == []


def test_only_what_is_admitted_is_sent_and_never_too_much(tmp_path: Path) -> None:
    folder = tmp_path / "include"
    (folder / "secret").mkdir(parents=True)
    (folder / "tile.h").write_text("#define TILE 64\n")
    (folder / "secret" / "key.h").write_text("key")
    parcel, _ = pack(folder, lambda path: path.name != "secret")
    assert list(parcel.files) == ["include/tile.h"]
    with pytest.raises(BadParcel, match="holds more than"):
        pack(folder, most_bytes=8)
