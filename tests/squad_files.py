"""Writes SQuAD files with questions made up at random."""

import itertools
import json
import random
from pathlib import Path
from typing import Any

from world import WORDS

SYLLABLES = ["ka", "mi", "ro", "té", "lu", "san", "vo", "ber", "ny", "zö"]
NAMES = ["".join(syllables).capitalize() for syllables in itertools.product(SYLLABLES, repeat=3)]
ADJECTIVES, THINGS = WORDS[:11], WORDS[11:]


def paragraph(rng: random.Random, number: int, names: list[str], impossible: bool) -> dict[str, Any]:
    """Who has what, as in “Kaminy has a red box, and 1,234 fish.”, and questions about it; the last name has nothing."""
    context, questions = "", []
    *owners, other = names
    for fact, name in enumerate(owners):
        thing = f"{rng.choice(ADJECTIVES)} {rng.choice(THINGS)}"
        context += f"{name}  has “a {thing}”, " if fact % 2 else f"{name} has a {thing}, "
        start = len(context) - len(thing) - (3 if fact % 2 else 2)
        assert context[start : start + len(thing)] == thing
        context += f"and {rng.randrange(1000, 9999):,} fish. "
        answer = [{"text": thing, "answer_start": start}]
        question = {"id": f"q{number}-{fact}", "question": f"What does {name} have?", "answers": answer}
        questions.append({**question, "is_impossible": False} if impossible else question)
    if impossible:
        questions.append({"id": f"q{number}-none", "question": f"What did {other} lose?", "answers": [], "is_impossible": True})
    return {"context": context, "qas": questions}


def write_squad(folder: Path, version: str, paragraphs: int, facts: int = 4, seed: int = 0) -> Path:
    """The same questions as training and as development set."""
    rng = random.Random(seed)
    names = rng.sample(NAMES, paragraphs * (facts + 1))
    shares = [names[i : i + facts + 1] for i in range(0, len(names), facts + 1)]
    made = [paragraph(rng, number, share, version == "2.0") for number, share in enumerate(shares)]
    content = {"version": version, "data": [{"title": "Who has what", "paragraphs": made}]}
    folder.mkdir(parents=True, exist_ok=True)
    for split in ("train", "dev"):
        (folder / f"{split}-v{version}.json").write_text(json.dumps(content), encoding="utf-8")
    return folder
