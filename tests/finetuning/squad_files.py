"""Writes SQuAD files with questions made up at random."""

import json
import random
from pathlib import Path
from typing import Any

from .conftest import WORDS

NAMES = ["Ada", "Boris", "Chloë", "Dmitri", "Émile", "Fatima", "Goro", "Hélène", "Ivan", "José"]
ADJECTIVES, THINGS = WORDS[:11], WORDS[11:]


def paragraph(rng: random.Random, number: int, facts: int, impossible: bool) -> dict[str, Any]:
    """A context of ``facts`` sentences such as “Ada has a red box, and 1,234 fish.” and questions about who has what."""
    context, questions = "", []
    for fact, name in enumerate(rng.sample(NAMES, facts)):
        thing = f"{rng.choice(ADJECTIVES)} {rng.choice(THINGS)}"
        context += f"{name}  has “a {thing}”, " if fact % 2 else f"{name} has a {thing}, "
        start = len(context) - len(thing) - (3 if fact % 2 else 2)
        assert context[start : start + len(thing)] == thing
        context += f"and {rng.randrange(1000, 9999):,} fish. "
        answer = [{"text": thing, "answer_start": start}]
        question = {"id": f"q{number}-{fact}", "question": f"What does {name} have?", "answers": answer}
        questions.append({**question, "is_impossible": False} if impossible else question)
    if impossible:
        other = next(name for name in NAMES if name not in context)
        questions.append(
            {"id": f"q{number}-none", "question": f"What does {other} have?", "answers": [], "is_impossible": True}
        )
    return {"context": context, "qas": questions}


def write_squad(folder: Path, version: str, paragraphs: int, facts: int = 4, seed: int = 0) -> Path:
    """The same questions as training and as development set."""
    rng = random.Random(seed)
    made = [paragraph(rng, number, facts, version == "2.0") for number in range(paragraphs)]
    content = {"version": version, "data": [{"title": "Who has what", "paragraphs": made}]}
    folder.mkdir(parents=True, exist_ok=True)
    for split in ("train", "dev"):
        (folder / f"{split}-v{version}.json").write_text(json.dumps(content), encoding="utf-8")
    return folder
