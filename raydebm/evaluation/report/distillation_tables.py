"""A distilled scorer and its ensemble, as tables of text."""

from raydebm.evaluation.report.table_cells import Table, number, with_interval
from raydebm.evaluation.report.variant_tables import variant_tables
from raydebm.evaluation.studies.distillation import DistillationStudy


def distillation_tables(study: DistillationStudy) -> list[Table]:
    """What distillation costs and saves, then both scorers side by side."""
    return [_agreement_table(study), *variant_tables(study.variants)]


def distillation_summary(study: DistillationStudy) -> str:
    """One paragraph that follows from the numbers alone."""
    ensemble, student = study.variants.rows
    return (
        f"One forward pass in place of {ensemble.num_adapters}: {study.time.speedup:.1f} times as fast on "
        f"{study.time.num_texts} texts. The student chooses the ensemble's answer on "
        f"{with_interval(study.same_choice)} % of {study.same_choice.n} test problems; pass@1 by mu alone is "
        f"{with_interval(student.by_mu)} %, the ensemble's {with_interval(ensemble.by_mu)} %."
    )


def _agreement_table(study: DistillationStudy) -> Table:
    time, texts = study.time, f"{study.time.num_texts} texts"
    rows = (
        ("rank correlation of mu within problems", number(study.mu_rank, digits=2), str(study.mu_rank.n)),
        ("rank correlation of sigma within problems", number(study.sigma_rank, digits=2), str(study.sigma_rank.n)),
        ("same answer chosen by mu, %", with_interval(study.same_choice), str(study.same_choice.n)),
        (
            "right before wrong within a problem, ensemble, %",
            with_interval(study.ensemble_auroc),
            str(study.ensemble_auroc.n),
        ),
        ("the same, student, %", with_interval(study.student_auroc), str(study.student_auroc.n)),
        (
            "seconds per 1,000 texts, ensemble",
            f"{1000 * time.ensemble_s / time.num_texts:.1f}",
            texts,
        ),
        ("the same, student", f"{1000 * time.student_s / time.num_texts:.1f}", texts),
    )
    return Table(
        title="What distillation costs and saves",
        caption="Over the test problems' first-pass candidates, with 95 % intervals over problems. For the times both "
        "scorers read the same texts, one after the other in one process.",
        headers=("what", "value", "n"),
        rows=rows,
    )
