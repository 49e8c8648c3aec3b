"""Pairs as preference data: the exact rows of a small pool, as other trainers read them."""

import shutil

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import yaml

from raydebm.errors import ConfigError, PoolError
from raydebm.export.finished_run import FinishedRun
from raydebm.export.pairs_folder import CONVERSATIONAL, export_pairs, preferences
from raydebm.records import Pair
from raydebm.tasks import get_task

ORIGIN = {
    "problem_id": "p2",
    "chosen_id": "c2-bo",
    "rejected_id": "c2-dee",
    "chosen_generator": "bo",
    "rejected_generator": "dee",
}
STANDARD_ROW = {
    "prompt": "What is 2 plus 2?\n\n",
    "chosen": "The sum is 4.\n#### 4",
    "rejected": "The sum is 5.\n#### 5",
    **ORIGIN,
}


@pytest.fixture(scope="module")
def exported(finished_run, tmp_path_factory):
    return export_pairs(finished_run, tmp_path_factory.mktemp("out") / "pairs", license="mit").folder


def conversational_row(problem):
    instructions, question = get_task("gsm8k").messages(problem)
    assert question == {"role": "user", "content": "What is 2 plus 2?"}
    return {
        "prompt": [dict(instructions), dict(question)],
        "chosen": [{"role": "assistant", "content": STANDARD_ROW["chosen"]}],
        "rejected": [{"role": "assistant", "content": STANDARD_ROW["rejected"]}],
        **ORIGIN,
    }


@pytest.mark.parametrize("read", ["parquet", "jsonl"])
def test_standard_rows_join_to_readable_texts(exported, read, read_lines):
    file = exported / "standard" / f"validation.{read}"
    rows = pq.read_table(file).to_pylist() if read == "parquet" else read_lines(file)

    assert rows == [STANDARD_ROW]


@pytest.mark.parametrize("read", ["parquet", "jsonl"])
def test_conversational_rows_have_the_chat_that_the_generators_got(exported, read, read_lines, problems):
    file = exported / "conversational" / f"validation.{read}"
    rows = pq.read_table(file).to_pylist() if read == "parquet" else read_lines(file)

    assert rows == [conversational_row(problems["p2"])]


def test_each_split_has_the_pairs_of_its_own_problems(exported):
    problem_ids = {
        split: pq.read_table(exported / "standard" / f"{split}.parquet").column("problem_id").to_pylist()
        for split in ("train", "validation")
    }
    assert problem_ids == {"train": ["p0", "p1"], "validation": ["p2"]}


def test_the_card_names_the_files_of_each_configuration(exported):
    _, block, text = (exported / "README.md").read_text().split("---\n", 2)
    card = yaml.safe_load(block)

    assert card["license"] == "mit"
    assert "2 train, 1 validation" in text
    named = [file["path"] for config in card["configs"] for file in config["data_files"]]
    assert sorted(named) == sorted(str(file.relative_to(exported)) for file in exported.rglob("*.parquet"))


def test_the_hubs_own_library_loads_both_configurations(exported, tmp_path, problems):
    datasets = pytest.importorskip("datasets")
    for name, expected in (("standard", STANDARD_ROW), ("conversational", conversational_row(problems["p2"]))):
        loaded = datasets.load_dataset(str(exported), name, cache_dir=str(tmp_path))

        assert {split: len(rows) for split, rows in loaded.items()} == {"train": 2, "validation": 1}
        assert loaded["validation"][0] == expected


def test_messages_are_lists_of_role_and_content():
    assert str(CONVERSATIONAL.field("prompt").type) == "list<item: struct<role: string, content: string>>"


def test_a_pair_whose_candidate_is_gone_is_an_error(problems):
    pair = Pair(problem_id="p2", chosen="c9", rejected="c8")

    with pytest.raises(PoolError, match="'c9' is missing or empty"):
        list(preferences([pair], candidates={}, problems=problems, messages_of=get_task("gsm8k").messages))


def test_a_run_without_pairs_says_what_makes_them(run_folder, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    shutil.copy(run_folder / "recipe.json", folder)

    with pytest.raises(PoolError, match="`raydebm train` makes them"):
        export_pairs(FinishedRun.read(str(folder)), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_pairs_that_cannot_all_be_written_leave_no_folder(run_folder, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(run_folder, folder)
    candidates = folder / "candidates" / "candidates.parquet"
    table = pq.read_table(candidates)
    pq.write_table(table.filter(pc.field("problem_id") != "p2"), candidates)

    with pytest.raises(PoolError, match="pair of problem 'p2'"):
        export_pairs(FinishedRun.read(str(folder)), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_export_does_not_mix_with_other_files(finished_run, tmp_path):
    (tmp_path / "mine.txt").write_text("keep me")

    with pytest.raises(ConfigError, match="not empty"):
        export_pairs(finished_run, tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["mine.txt"]
