"""The code of a model card. What stands there runs as it is, in the folder or from anywhere once it is on the hub."""

from pathlib import Path

from raydebm.config import Pooling

MINILM_ON_HUB = "sentence-transformers/all-MiniLM-L6-v2"


def hub_backbone(backbone: str) -> str | None:
    """The backbone's name on the hub; None for one that the hub does not have."""
    if backbone == "package:minilm":
        return MINILM_ON_HUB
    is_local = Path(backbone).is_dir() or backbone.startswith((".", "/", "~")) or backbone.count("/") > 1
    return None if is_local or ":" in backbone else backbone


def scorer_example(repository: str | None) -> str:
    """``EnsembleScorer`` on two candidates."""
    where = '"."' if repository is None else f'"{repository}"'
    comment = "  # this folder" if repository is None else ""
    return f"""```python
import statistics

from raydebm.scorer.ensemble import EnsembleScorer

problem = "What is 2 + 2?"
candidates = ["2 + 2 = 4. The answer is 4.", "The answer is 5."]
scorer = EnsembleScorer.load({where}){comment}
scored = scorer.score([(problem, candidate) for candidate in candidates])
for candidate, energies in zip(candidates, scored):
    mu, sigma = statistics.fmean(energies.members), statistics.pstdev(energies.members)
    print(f"{{mu:.3f}} +- {{sigma:.3f}}  {{candidate}}")
```"""


_ENCODER_FORM = """    cls, sep = tokenizer.cls_token_id, tokenizer.sep_token_id
    tokens = torch.tensor([[cls, *ids(problem), sep, *ids(candidate), sep]])"""
_DECODER_FORM = """    first = tokenizer("\\n")["input_ids"][:1]
    opening = first if first == [tokenizer.bos_token_id] else []
    tokens = torch.tensor([[*opening, *ids(problem), *ids("\\n"), *ids(candidate), tokenizer.eos_token_id]])"""


def peft_example(
    backbone: str, *, adapter: str, pooling: Pooling, is_decoder: bool = False, repository: str | None
) -> str:
    """One member's energy by PEFT and torch alone."""
    name = hub_backbone(backbone)
    if name is not None or ":" not in backbone:
        imports, source = "", f'"{name or backbone}"'
    else:
        imports = (
            "from raydebm.scorer.model.backbone import resolve_backbone  # only for the place of its own encoder\n"
        )
        source = f'str(resolve_backbone("{backbone}"))'
    folder = '"."  # this folder' if repository is None else f'snapshot_download("{repository}")'
    hub = "" if repository is None else "from huggingface_hub import snapshot_download\n"
    # One text has no padding, so the plain mean is the mean over its tokens.
    pooled = {"cls": "[:, 0]", "last": "[:, -1]", "mean": ".mean(dim=1)"}[pooling]
    form = _DECODER_FORM if is_decoder else _ENCODER_FORM
    return f"""```python
import torch
{hub}from peft import PeftModel
from safetensors.torch import load_file
from torch.nn.functional import gelu, layer_norm, linear
from transformers import AutoModel, AutoTokenizer
{imports}
folder = {folder}
backbone = {source}
tokenizer = AutoTokenizer.from_pretrained(backbone)
encoder = AutoModel.from_pretrained(backbone, dtype=torch.float32)
encoder = PeftModel.from_pretrained(encoder, folder, subfolder="{adapter}").eval()
head = load_file(f"{{folder}}/{adapter}/head.safetensors")


def ids(text):
    return tokenizer(text, add_special_tokens=False)["input_ids"]


@torch.no_grad()
def energy(problem, candidate):
{form}
    hidden = encoder(input_ids=tokens, attention_mask=torch.ones_like(tokens)).last_hidden_state{pooled}
    hidden = layer_norm(hidden, hidden.shape[-1:], head["norm.weight"], head["norm.bias"])
    hidden = gelu(linear(hidden, head["hidden.weight"], head["hidden.bias"]))
    return float(linear(hidden, head["out.weight"], head["out.bias"]))


print(energy("What is 2 + 2?", "2 + 2 = 4. The answer is 4."))
```"""
