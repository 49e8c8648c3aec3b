"""Make invoices as a scanner sees them, the right values, and the answers of four small readers.

    python make_invoices.py                     # 400 invoices: problems.jsonl and answers.jsonl in this folder
    python make_invoices.py --count 40 --folder small

The readers are programs that make the mistakes that small extraction models make. They see the scanned text alone.
Where it has a trap, such as a day before a month, a reader falls into it if the place is harder than the reader's skill
and luck. How hard a place is depends on its text, so readers share mistakes; the luck is drawn for each sample.
"""

import argparse
import json
import random
import re
from calendar import month_abbr
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

COMPANIES = [
    "Brook & Sons Ltd", "Nordwind GmbH", "Lakeside Tools", "Ferrum AG", "Oak Street Bakery", "Blue Harbor Inc",
    "Studio Salt", "Hill Farm Co-op", "Tessel BV", "Grand Hotel Alm", "Olsen Print", "Quick Freight LLC",
]  # fmt: skip
GOODS = [
    "steel bolts", "copper wire", "desk lamp", "oak shelf", "printer paper", "paint brush", "garden hose",
    "door handle", "work gloves", "LED panel", "rubber seal", "glass jar", "hand saw", "floor tiles",
    "tool box", "cable drum",
]  # fmt: skip
MONTHS = list(month_abbr)
CONFUSED = {"0": "O", "1": "l", "5": "S", "8": "B", "O": "0", "S": "5", "B": "8"}
REPAIRS = {"O": "0", "l": "1", "S": "5", "B": "8"}
TRAPS = ("characters", "dates", "terms", "comma", "corrected", "discount", "pages", "totals", "parties", "slips")
SKILLS = {
    "ada": (1.00, 0.90, 0.65, 1.10, 0.85, 0.65, 0.95, 0.90, 0.75, 1.12),
    "bo": (0.95, 0.50, 0.90, 1.10, 0.70, 0.90, 0.65, 0.80, 0.95, 1.10),
    "cy": (0.75, 0.85, 0.85, 1.05, 0.60, 0.65, 0.90, 0.95, 0.70, 1.10),
    "dee": (0.60, 0.60, 0.60, 1.00, 0.90, 0.60, 0.60, 0.70, 0.85, 1.07),
}
"""By reader the skill at each kind of trap; every value is a place for a slip."""


@dataclass(frozen=True)
class Layout:
    """How a company prints its invoices."""

    number: str
    date: str
    due: str
    seller: str
    buyer: str
    is_buyer_first: bool
    comma: bool
    dates: str
    """As for ``strftime``."""
    one_line: bool
    """Subtotal, tax and total in one line."""


LAYOUTS = [
    Layout("Invoice no.", "Date", "Due", "From", "To", False, False, "%Y-%m-%d", False),
    Layout("Rechnung/Invoice", "Datum/Date", "Zahlbar bis/Due", "Seller", "Customer", False, True, "%d.%m.%Y", False),
    Layout("INVOICE #", "Issued", "Pay by", "Seller", "Bill to", True, False, "%m/%d/%Y", True),
    Layout("Ref", "Date", "Payment due", "Supplier", "Buyer", True, True, "%d %b %Y", True),
]


def entry(sku: str, description: str, quantity: int, price: float, amount: float) -> dict[str, Any]:
    """One of an invoice's items."""
    return {"sku": sku, "description": description, "quantity": quantity, "unit_price": price, "amount": amount}


def make(rng: random.Random) -> tuple[dict[str, Any], Layout]:
    """An invoice, and the layout in which it is printed."""
    layout = rng.choice(LAYOUTS)
    seller, buyer = rng.sample(COMPANIES, 2)
    day = date(2025, 1, 1) + timedelta(days=rng.randrange(365))
    items = []
    for name in rng.sample(GOODS, rng.randint(2, 4)):
        sku = "".join(rng.sample("ABCDSO", 2)) + "-" + "".join(rng.choices("0123456789", k=3))
        quantity, price = rng.randint(1, 40), rng.randint(50, 15000) / 100
        items.append(entry(sku, name, quantity, price, round(quantity * price, 2)))
    if rng.random() < 0.25:
        off = -round(sum(item["amount"] for item in items) * rng.choice([0.02, 0.05, 0.1]), 2)
        items.append(entry("DISCOUNT", "discount", 1, off, off))
    rate = rng.choice([7, 19, 20, 21])
    subtotal = round(sum(item["amount"] for item in items), 2)
    tax = round(subtotal * rate / 100, 2)
    gold = {
        "number": f"{rng.choice(['INV', 'R', 'SB'])}-{rng.randint(10000, 99999)}",
        "date": day.isoformat(),
        "due_date": (day + timedelta(days=rng.choice([14, 30, 30, 45]))).isoformat(),
        "seller": seller, "buyer": buyer,
        "currency": "USD" if layout.dates == "%m/%d/%Y" else rng.choice(["EUR", "GBP", "CHF"]),
        "items": items, "subtotal": subtotal, "tax_rate": rate, "tax": tax, "total": round(subtotal + tax, 2),
    }  # fmt: skip
    return gold, layout


def scan(rng: random.Random, text: str, rate: float = 0.025) -> str:
    """A printed text with confused characters; now and then a 3 looks like an 8 and nobody can tell."""
    seen = [CONFUSED[one] if one in CONFUSED and rng.random() < rate else one for one in text]
    return "".join("8" if one == "3" and rng.random() < rate / 3 else one for one in seen)


def page(rng: random.Random, gold: dict[str, Any], layout: Layout) -> str:
    """The invoice as text, as scanned."""

    def money(value: float) -> str:
        return scan(rng, f"{value:,.2f}".translate(str.maketrans(",.", ".,")) if layout.comma else f"{value:,.2f}")

    def day(text: str) -> str:
        one = date.fromisoformat(text)
        other = text if layout.dates == "%m/%d/%Y" else f"{one:%d/%m/%Y}"
        return scan(rng, one.strftime(layout.dates) if rng.random() < 0.7 else other)

    days = (date.fromisoformat(gold["due_date"]) - date.fromisoformat(gold["date"])).days
    due = f"Terms: net {days} days" if rng.random() < 0.35 else f"{layout.due}: {day(gold['due_date'])}"
    parties = [f"{layout.seller}: {gold['seller']}", f"{layout.buyer}: {gold['buyer']}"]
    if rng.random() < 0.2:
        parties = [gold["seller"], f"for {gold['buyer']}"]  # a letterhead, without labels
    lines = [*(reversed(parties) if layout.is_buyer_first else parties)]
    lines += [f"{layout.number}: {scan(rng, gold['number'])}", f"{layout.date}: {day(gold['date'])}", due]
    lines += [f"All prices in {gold['currency']}", "sku | description | quantity | price | amount"]
    broken = rng.randrange(len(gold["items"])) if rng.random() < 0.3 else -1
    for place, item in enumerate(gold["items"]):
        if item["sku"] == "DISCOUNT":
            lines.append(f"less discount {money(item['amount'])}")
            continue
        quantity = scan(rng, str(item["quantity"]))
        if rng.random() < 0.08:
            quantity = f"{rng.randint(1, 40)} corrected: {quantity}"
        before = f"{scan(rng, item['sku'])} | {item['description']}"
        after = f" | {quantity} | {money(item['unit_price'])} | {money(item['amount'])}"
        if place == broken:
            carried = sum(one["amount"] for one in gold["items"][:place])
            lines += [before, "page 1 of 2", f"carried forward {money(carried)}", f" {after}"]
        else:
            lines.append(before + after)
    subtotal, total = (f"{name} {money(gold[name.lower()])}" for name in ("Subtotal", "Total"))
    tax = f"Tax {scan(rng, str(gold['tax_rate']))} % {money(gold['tax'])}"
    lines += [f"{subtotal}   {total}   {tax}"] if layout.one_line else [subtotal, tax, total]
    return "\n".join(lines)


class Reader:
    """Reads one scanned invoice once."""

    def __init__(self, name: str, text: str, rng: random.Random) -> None:
        self.skills, self.text, self.rng = dict(zip(TRAPS, SKILLS[name], strict=True)), text, rng
        self.has_comma = bool(re.search(r"\d,\w\w\b", text)) and not self.falls_for("comma", text)

    def falls_for(self, trap: str, place: str) -> bool:
        hard = random.Random(f"{trap} {place}").random()
        return hard + self.rng.gauss(0, 0.1) > self.skills[trap]

    def digits(self, text: str) -> str:
        """Letters as the digits that they are, or lost."""
        return re.sub("[OlSB]", lambda found: "" if self.falls_for("characters", text) else REPAIRS[found[0]], text)

    def money(self, text: str) -> float:
        plain = self.digits(text)
        plain = plain.replace(".", "").replace(",", ".") if self.has_comma else plain.replace(",", "")
        value = float(re.sub(r"\.(?=.*\.)", "", plain) or 0)
        return round(value + (10 if self.falls_for("slips", text) else 0), 4)

    def code(self, text: str) -> str:
        """Letters before the hyphen and digits behind it, for a reader who knows that."""
        if self.falls_for("characters", text):
            return text
        letters, _, digits = text.partition("-")
        return "".join({"0": "O", "5": "S", "8": "B"}.get(one, one) for one in letters) + "-" + self.digits(digits)

    def day(self, text: str) -> str:
        """An ISO date; the order of day and month by the currency."""
        if word := re.search("[A-Z][a-z][a-z]", text):
            day, year = self.digits(text.replace(word[0], "")).split()
            return self.iso(year, str(MONTHS.index(word[0])), day)
        parts = self.digits(text)
        if "-" in parts:
            return self.iso(*parts.split("-"))
        first, second, year = re.split("[./]", parts)
        is_month_first = ("in USD" in self.text) != self.falls_for("dates", text)
        month, day = (first, second) if is_month_first else (second, first)
        return self.iso(year, day, month) if int(month or 1) > 12 else self.iso(year, month, day)

    def iso(self, year: str, month: str, day: str) -> str:
        return f"{year:0>4}-{month:0>2}-{day:0>2}"

    def parties(self, head: list[str]) -> tuple[str, str]:
        labels = {label: who for one in LAYOUTS for label, who in ((one.seller, "seller"), (one.buyer, "buyer"))}
        named = {labels[label]: name for label, _, name in (line.partition(": ") for line in head) if label in labels}
        if len(named) < 2:  # a letterhead: the buyer is behind "for"
            named = {"buyer" if line.startswith("for ") else "seller": line.removeprefix("for ") for line in head}
        is_swapped = self.falls_for("parties", "".join(head)) and next(iter(named)) == "buyer"
        return (named["buyer"], named["seller"]) if is_swapped else (named["seller"], named["buyer"])

    def items(self) -> Iterator[dict[str, Any]]:
        lines, half = self.text.split("amount\n")[1].split("\n"), None
        for line in lines:
            cells = [cell.strip() for cell in line.split("|")]
            if line.startswith("less discount") and not self.falls_for("discount", line):
                off = -abs(self.money(line.split()[-1]))
                yield entry("DISCOUNT", "discount", 1, off, off)
            if len(cells) == 2:
                half = cells
            elif len(cells) == 4 and half and not self.falls_for("pages", line):
                cells, half = [*half, *cells[1:]], None
            if len(cells) == 5:
                before, _, after = cells[2].rpartition(" corrected: ")
                quantity = before if before and self.falls_for("corrected", line) else after
                number, price, amount = int(self.digits(quantity) or 1), self.money(cells[3]), self.money(cells[4])
                yield entry(self.code(cells[0]), cells[1], number, price, amount)

    def read(self) -> dict[str, Any]:
        """The reader's answer."""
        lines = self.text.split("\n")
        number, issued, due = (line.partition(": ")[2] for line in lines[2:5])
        day, (seller, buyer) = self.day(issued), self.parties(lines[:2])
        due_date = self.due(day, due) if "net" in due else self.day(due)
        subtotal, total = (re.findall(rf"{word} ([-\d.,OlSB]+)", self.text)[0] for word in ("Subtotal", "Total"))
        if "   Total" in self.text and self.falls_for("totals", self.text):
            subtotal, total = total, subtotal
        rate, tax = re.findall(r"Tax (\w+) % ([-\d.,OlSB]+)", self.text)[0]
        return {
            "number": self.code(number), "date": day, "due_date": due_date, "seller": seller, "buyer": buyer,
            "currency": re.findall("in ([A-Z]{3})", self.text)[0], "items": list(self.items()),
            "subtotal": self.money(subtotal), "tax_rate": int(self.digits(rate) or 0), "tax": self.money(tax),
            "total": self.money(total),
        }  # fmt: skip

    def due(self, day: str, terms: str) -> str:
        """The date after so many days. A reader who does not know the words gives the invoice's date."""
        if self.falls_for("terms", self.text):
            return day
        try:
            return (date.fromisoformat(day) + timedelta(days=int(terms.split()[1]))).isoformat()
        except ValueError:  # no such day
            return day


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--folder", type=Path, default=Path(__file__).parent)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    rng, problems, answers = random.Random(asked.seed), [], []
    for place in range(asked.count):
        gold, layout = make(rng)
        text = page(rng, gold, layout)
        problems.append({"id": f"invoice-{place:03}", "text": text, "gold": gold})
        for name in SKILLS:
            for sample in range(2):
                found = Reader(name, text, random.Random(f"{asked.seed} {place} {name} {sample}")).read()
                said = f"The invoice as JSON:\n{json.dumps(found)}"
                answers.append({"problem_id": f"invoice-{place:03}", "model": name, "sample": sample, "text": said})
    for name, rows in (("problems", problems), ("answers", answers)):
        (asked.folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    main()
