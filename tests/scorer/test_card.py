"""The model card, by hand."""

from raydebm.config import AdapterConfig
from raydebm.scorer.card import model_card
from raydebm.scorer.checkpoint_records import AdapterRecord, EnsembleRecord, EpochMetrics


def epoch(number, train_loss, validation_loss):
    accuracy = None if validation_loss is None else 0.75
    return EpochMetrics(
        epoch=number, train_loss=train_loss, validation_loss=validation_loss, validation_accuracy=accuracy,
        learning_rate=1e-3, seconds=1.0,
    )  # fmt: skip


def adapter(name, **fields):
    config = AdapterConfig(name=name, rank=8, alpha=16, targets=("Wqkv", "Wo"))
    counts = {"num_train_problems": 30, "num_train_pairs": 90, "num_validation_problems": 5, "num_validation_pairs": 15}
    return AdapterRecord.model_construct(adapter=config, **counts, num_truncated_texts=2, num_texts=70, **fields)


def test_a_card_names_backbone_adapters_data_and_the_epochs_that_were_kept():
    first = adapter("a0", best_epoch=2, epochs=(epoch(1, 0.7, 0.69), epoch(2, 0.5, 0.61234), epoch(3, 0.4, 0.62)))
    blind = adapter("a1", best_epoch=1, epochs=(epoch(1, 0.7, None),))
    record = EnsembleRecord.model_construct(
        adapters=("a0", "a1"), backbone="some/model", backbone_fingerprint="f00", pooling="mean", max_length=512,
        data_fingerprint="da7a", versions={"python": "3.11", "torch": "2"},
    )  # fmt: skip

    lines = model_card(record, [first, blind]).splitlines()

    assert lines[0] == "# Energy scorer"
    assert lines[2].startswith(
        "2 low-rank adapters with an energy head each, on the frozen backbone `some/model` (weights"
    )
    assert "reading the mean of the tokens' states. Lower energy is better" in lines[2]
    assert lines[6:8] == [
        "| a0 | 8 | 16 | Wqkv, Wo | 30 | 90 | 2 of 3 | 0.5000 | 0.6123 | 0.7500 |",
        "| a1 | 8 | 16 | Wqkv, Wo | 30 | 90 | 1 of 1 | 0.7000 | - | - |",
    ]
    assert (
        "Validation: 5 problems, 15 pairs, never seen in training. Inputs of up to 512 tokens; 2 of 70 texts"
        in lines[9]
    )
    assert lines[11] == "Data da7a. Versions: python 3.11, torch 2."
