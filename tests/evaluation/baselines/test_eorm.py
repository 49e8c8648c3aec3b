import pytest
import torch

from raydebm.config import EormBaseline
from raydebm.errors import CheckpointError, ConfigError, PoolError
from raydebm.evaluation.baselines import build_scorer
from raydebm.evaluation.baselines.eorm import SIZES, Eorm, EormModel, EormSize, train_eorm
from raydebm.scorer.model.batching import pad
from raydebm.scorer.pairs import TrainingGroup


def make_groups(first, count):
    """Problems whose good candidates say "right" and whose bad ones say "wrong", at changing places."""
    groups = []
    for index in range(first, first + count):
        filler = f"w{index % 40} w{(index * 7) % 40}"
        texts = (f"{filler} right", f"right {filler}", f"{filler} wrong", f"wrong w5 {filler}")
        pairs = ((0, 2), (0, 3), (1, 2), (1, 3))
        groups.append(TrainingGroup(problem_id=f"p{index}", prompt=f"w{index % 50} w1", texts=texts, pairs=pairs))
    return groups


TRAIN, VALIDATION = make_groups(0, 16), make_groups(100, 6)


@pytest.fixture
def size(encoder_reward):
    return EormSize(tokenizer=str(encoder_reward), hidden_size=16, max_length=32, learning_rate=5e-3, max_epochs=4)


@pytest.fixture
def trained(size, tmp_path):
    train_eorm("eorm", size, train=TRAIN, validation=VALIDATION, folder=tmp_path / "eorm")
    return tmp_path / "eorm"


def test_the_published_size_has_the_published_number_of_parameters():
    """53.4 million with GPT-2's 50,257 tokens; the paper rounds to 55."""
    with torch.device("meta"):
        model = EormModel(hidden_size=SIZES["published"].hidden_size, vocabulary=50_257)

    embedding, layer = 50_257 * 768, 12 * 768**2 + 13 * 768
    head = 2 * 768 + 768**2 + 768 + 768 + 1
    assert sum(parameter.numel() for parameter in model.parameters()) == embedding + 2 * layer + head == 53_366_017


def test_without_positions_the_order_of_the_other_tokens_changes_nothing():
    model = EormModel(hidden_size=16, vocabulary=40).eval()
    batch = pad([(1, 5, 6, 7), (1, 7, 5, 6)], positions=[0, 1], pad_id=0)

    with torch.no_grad():
        first, second = model(batch).tolist()

    assert first == pytest.approx(second, abs=1e-6)


def test_padding_changes_no_energy():
    model = EormModel(hidden_size=16, vocabulary=40).eval()
    with torch.no_grad():
        alone = float(model(pad([(1, 5, 6)], positions=[0], pad_id=0))[0])
        padded = float(model(pad([(1, 5, 6), (1, 5, 6, 7, 8, 9)], positions=[0, 1], pad_id=0))[0])

    assert padded == pytest.approx(alone, abs=1e-6)


def test_it_learns_to_prefer_correct_candidates_of_unseen_problems(trained, pool):
    scorer = Eorm(trained, "eorm")
    scores = scorer.score([pool("q", "w8 w9 wrong", "w8 w9 right", prompt="w49 w1")])[0]

    assert scores[1].value > scores[0].value
    assert scorer.record.epochs[scorer.record.best_epoch - 1].validation_accuracy == 1.0
    assert scorer.record.num_train_pairs == 64
    # A mean over problems, which begins at chance (ln 2).
    losses = [epoch.train_loss for epoch in scorer.record.epochs]
    assert 0.4 < losses[0] < 1.0
    assert losses[3] < 0.01


def test_the_same_call_gives_the_same_weights_whatever_the_global_seed(size, trained, tmp_path):
    torch.manual_seed(987)
    train_eorm("eorm", size, train=TRAIN[::-1], validation=VALIDATION, folder=tmp_path / "again")

    assert (tmp_path / "again" / "eorm.safetensors").read_bytes() == (trained / "eorm.safetensors").read_bytes()


def test_without_validation_the_last_epoch_is_kept(size, tmp_path):
    record = train_eorm("eorm", size, train=TRAIN, validation=[], folder=tmp_path)

    assert record.best_epoch == 4
    assert record.epochs[-1].validation_accuracy is None


def test_a_long_problem_is_cut_and_the_answer_stays(trained, pool):
    scorer = Eorm(trained, "eorm")
    scores = scorer.score([pool("q", "w8 w9 wrong", "w8 w9 right", prompt="w49 " * 100)])[0]

    assert scores[1].value > scores[0].value


def test_building_trains_once_and_again_only_for_other_data_or_settings(size, trained):
    assert Eorm.is_trained(trained, size, TRAIN, VALIDATION)
    assert not Eorm.is_trained(trained, size, TRAIN[:8], VALIDATION)
    assert not Eorm.is_trained(trained, size.model_copy(update={"learning_rate": 0.01}), TRAIN, VALIDATION)


def test_nothing_to_train_on_is_said(size, tmp_path):
    with pytest.raises(PoolError, match="no pairs to train on"):
        train_eorm("eorm", size, train=[], validation=[], folder=tmp_path)
    with pytest.raises(ConfigError, match="kind eorm keeps a checkpoint in the run directory"):
        build_scorer(EormBaseline(name="eorm"))


def test_a_torn_checkpoint_is_refused(trained):
    (trained / "eorm.safetensors").write_bytes(b"corrupt")
    with pytest.raises(CheckpointError, match="cannot be read"):
        Eorm(trained, "eorm")


def test_a_missing_tokenizer_says_what_to_do(size, tmp_path):
    wrong = size.model_copy(update={"tokenizer": "no-such-tokenizer-here"})
    with pytest.raises(CheckpointError, match="package:minilm"):
        train_eorm("eorm", wrong, train=TRAIN, validation=[], folder=tmp_path)
