"""The run directory: incomplete writes are never seen, bad tables are named, a stage is complete with its manifest."""

import re
from dataclasses import dataclass
from types import SimpleNamespace

import pyarrow as pa
import pytest

from raydebm.config import parse_recipe
from raydebm.decision.policy_file import policy_in_force
from raydebm.errors import CheckpointError, ConfigError, PoolError
from raydebm.pipeline.stages.evaluation import read_evaluation
from raydebm.records import Pair
from raydebm.run.addresses import filesystem_of, local_copy, resolved
from raydebm.run.codec import Codec
from raydebm.run.directory import RunDir
from raydebm.run.ensemble_file import read_ensemble_file
from raydebm.run.folder import Folder
from raydebm.run.stages import IMPORTED
from raydebm.run.tables import PAIRS

PAIR, OTHER = (Pair(problem_id="p", chosen=chosen, rejected="b") for chosen in ("a", "c"))


@dataclass(frozen=True)
class OnlyId:
    problem_id: str


@pytest.fixture
def run(tmp_path):
    return RunDir(str(tmp_path / "run"))


def test_a_table_without_a_column_names_it(run):
    run.write_records(Codec(OnlyId), [OnlyId("p")], "pairs", "train.parquet")

    with pytest.raises(PoolError, match=r"lacks column.*chosen, rejected"):
        run.pairs("train")


@pytest.mark.parametrize(
    ("also", "remedy"),
    [
        pytest.param([], "remove {root}/labels/labels.parquet and run the recipe again", id="unfinished"),
        pytest.param(
            ["labels/manifest.json"], "remove {root}/labels/manifest.json and run the recipe again", id="finished"
        ),
        pytest.param(
            ["labels/manifest.json", IMPORTED.marker], "run `raydebm import-decisions` again", id="from elsewhere"
        ),
    ],
)
def test_a_table_without_a_column_tells_how_to_make_it_again(run, also, remedy):
    run.write_records(Codec(OnlyId), [OnlyId("p")], "labels", "labels.parquet")
    for file in also:
        run.write_json({}, *file.split("/"))

    with pytest.raises(PoolError, match=re.escape(remedy.format(root=run.root))):
        run.labels()


def test_a_table_of_no_run_without_a_column_is_not_to_be_removed(tmp_path):
    folder = Folder(str(tmp_path))
    folder.write_records(Codec(OnlyId), [OnlyId("p")], "train.parquet")

    with pytest.raises(PoolError, match="not a table of this kind: give one that this version wrote"):
        folder.read_records(PAIRS, "train.parquet")


def test_a_write_that_fails_leaves_the_old_file(run, monkeypatch):
    run.write_json({"v": 1}, "a.json")
    with pytest.raises(TypeError):
        run.write_json({"v": object()}, "a.json")

    assert run.read_json("a.json") == {"v": 1}


def test_a_stage_is_copied_with_its_folders_and_manifest(run, tmp_path):
    run.write_bytes(b"table", "labels", "labels.parquet")
    run.write_bytes(b"part", "labels", "parts", "0.parquet")
    run.finish("labels", {"fingerprint": "f"})
    other = RunDir(str(tmp_path / "other"))
    other.write_bytes(b"old", "labels", "old.parquet")
    run.copy_stage("labels", other)
    assert other.read_bytes("labels", "parts", "0.parquet") == b"part"
    assert other.read_bytes("labels", "labels.parquet") == b"table"
    assert not other.exists("labels", "old.parquet")
    assert other.manifest("labels") == {"fingerprint": "f"}


def test_a_table_that_was_read_and_has_not_changed_is_not_read_again(run):
    run.write_pairs([PAIR], "train")

    assert run.pairs("train") is run.pairs("train")


def test_the_recipe_comes_back(run):
    recipe = parse_recipe(
        {
            "name": "r",
            "task": {"name": "gsm8k"},
            "generators": [{"kind": "recorded", "name": "g", "pool": "p", "model": "m"}],
        }
    )
    run.write_recipe(recipe)

    assert run.recipe() == recipe


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (None, "does not exist; make a run first"),
        (b"{", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b"[]", "must hold an object, got list"),
    ],
)
def test_a_recipe_that_cannot_be_read_is_named(run, content, match):
    if content is not None:
        run.write_bytes(content, "recipe.json")

    with pytest.raises(ConfigError, match=rf"recipe\.json {match}"):
        run.recipe()


def test_a_file_in_place_of_the_run_is_named(tmp_path):
    (tmp_path / "good.yaml").write_text("name: r")
    run = RunDir(str(tmp_path / "good.yaml"))
    for read in (run.recipe, lambda: run.manifest("labels"), lambda: policy_in_force(run)):
        with pytest.raises(ConfigError, match=r"good\.yaml/.*: it leads through a file"):
            read()
    with pytest.raises(PoolError, match=r"good\.yaml is a file; give the folder"):
        run.names()


@pytest.mark.parametrize("content", [b"", b"{", b"[]"], ids=["empty", "half", "list"])
def test_a_torn_manifest_is_named_with_its_remedy(run, content):
    run.write_bytes(content, "labels", "manifest.json")
    with pytest.raises(ConfigError, match=r"labels/manifest\.json .*remove it and run the recipe again"):
        run.manifest("labels")


def test_a_filesystem_that_does_not_answer_is_no_mistake_of_the_user(run, monkeypatch):
    monkeypatch.setattr(RunDir, "read_bytes", lambda *_: (_ for _ in ()).throw(OSError("timeout")))
    with pytest.raises(OSError, match="timeout"):
        run.manifest("labels")


def test_a_file_that_cannot_take_its_place_leaves_nothing_behind(run, tmp_path):
    (tmp_path / "run" / "table.parquet").mkdir(parents=True)
    with pytest.raises(OSError, match=r"table\.parquet"):
        run.write_bytes(b"x", "table.parquet")
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["table.parquet"]


@pytest.mark.parametrize(
    ("address", "reason"),
    [("nope://x", "Unrecognized filesystem"), ("s3://", "it names no bucket"), ("file://x", "relative")],
)
def test_an_address_that_is_none_is_refused_with_the_known_schemes(address, reason):
    with pytest.raises(ConfigError, match=f"'{address}' is not an address: .*{reason}.*s3://, gs://"):
        filesystem_of(address)


def test_no_message_about_an_address_tells_a_password():
    with pytest.raises(ConfigError) as error:
        filesystem_of("nope://user:secret@host/x")
    assert "secret" not in str(error.value)


def test_a_folder_is_published_with_its_last_file_last(run, tmp_path):
    for name in ("done.json", "weights/w.bin", "z.txt"):
        (tmp_path / "made" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "made" / name).write_text(name)
    run.write_bytes(b"old", "scorer", "a0", "old.txt")
    run.publish(tmp_path / "made", "scorer", "a0", last="done.json")

    assert run.read_bytes("scorer", "a0", "weights", "w.bin") == b"weights/w.bin"
    assert not run.exists("scorer", "a0", "old.txt")


def test_a_relative_path_becomes_absolute_and_a_url_stays(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    assert resolved("runs") == str(tmp_path / "runs")
    assert resolved("s3://bucket/runs") == "s3://bucket/runs"


def test_a_remote_folder_is_copied_for_the_block(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.txt").write_text("x")
    with local_copy(tmp_path.as_uri()) as folder:
        assert folder != tmp_path
        assert (folder / "a" / "x.txt").read_text() == "x"
    assert not folder.exists()


@pytest.mark.parametrize(
    ("content", "match"),
    [(None, "does not contain a trained ensemble"), (b"{", "cannot be read"), (b"[]", "must be an object")],
)
def test_an_ensemble_that_cannot_be_read_is_named(run, content, match):
    if content is not None:
        run.write_bytes(content, "scorer", "ensemble.json")

    with pytest.raises(CheckpointError, match=match):
        read_ensemble_file(run.uri("scorer"))


@pytest.mark.parametrize(
    ("stated", "recorded", "expected"),
    [
        pytest.param("auto", {}, "auto", id="nothing scored yet: chosen by a probe"),
        pytest.param("auto", {"dtype": "bfloat16"}, "bfloat16", id="as the first pass"),
        pytest.param("float32", {"dtype": "bfloat16"}, "float32", id="as stated"),
    ],
)
def test_what_is_scored_later_is_scored_in_the_type_of_the_energies(tmp_path, stated, recorded, expected):
    run = RunDir(str(tmp_path))
    run.finish("energies", {"facts": recorded})

    assert run.scoring_type(stated) == expected


def test_two_writers_of_one_file_do_not_tear_each_others(tmp_path):
    run = RunDir(str(tmp_path))
    with run.open_table(PAIRS, "pairs", "train.parquet") as first:
        first.write(pa.Table.from_pylist([PAIRS.row(PAIR)], schema=PAIRS.schema))
        run.write_pairs([PAIR, PAIR], "train")

    assert len(run.pairs("train")) == 1


def test_what_killed_writers_left_is_removed_and_nothing_else(tmp_path):
    run = RunDir(str(tmp_path))
    for name in ("train.parquet", "train.parquet.0123456789ab.tmp"):
        run.write_json({}, "pairs", name)

    run.remove_partial("pairs")

    assert run.names("pairs") == ["train.parquet"]


@pytest.mark.parametrize(
    ("content", "message"), [(b"", "is not JSON"), (b"[]", "must hold an object"), (None, "does not exist")]
)
def test_a_file_of_a_complete_stage_that_cannot_be_used_is_named_with_its_remedy(run, content, message):
    run.finish("evaluation", {})
    if content is not None:
        run.write_bytes(content, "evaluation", "metrics.json")

    remedy = f"remove {run.uri('evaluation', 'manifest.json')} and run the recipe again"
    with pytest.raises(ConfigError, match=f"metrics.json {message}.*{re.escape(remedy)}"):
        read_evaluation(run)


def test_a_folder_that_is_made_right_after_it_was_not_found_is_empty(run, monkeypatch):
    def late(selector):
        raise FileNotFoundError(selector.base_dir)

    found = SimpleNamespace(get_file_info=late)
    monkeypatch.setattr("raydebm.run.folder.filesystem_of", lambda address: (found, address))

    assert run.files("candidates") == []
