"""Sentences that kiosks and robots say: open templates over a closed vocabulary, from a seed."""

from __future__ import annotations

import itertools
import math
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from boardvoice.demo_voice import spoken_numbers as say

_LISTS = {
    "place": """ticket office|main entrance|waiting room|information desk|coffee shop|car park|
        bus station|train station|library|museum|city hall|hospital|pharmacy|north exit|south exit|
        elevator|lost property office|baggage claim|taxi stand|bank|reception|restaurant|restroom|
        meeting room|post office|security desk|parking garage|food court|first aid room|gift shop|
        conference room|charging station|loading dock|cafeteria|front desk|swimming pool|gym|
        school|theater|market|stairs|play area|check in desk|arrivals hall|east wing|west wing""",
    "city": """London|Paris|Boston|Oxford|Chicago|Dublin|Madrid|Berlin|Rome|Vienna|Toronto|Sydney|
        Denver|Seattle|Dallas|Miami|Houston|Tokyo|Lisbon|Geneva|Prague|Oslo|Cairo|Delhi""",
    "day": "Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday",
    "side": "left|right",
    "desk": "counter|desk|window|room|gate|booth|table|line",
    "adjective": "small|large|heavy|green|blue|red|yellow|black|white|open|empty|new",
    "thing": """box|chair|door|bag|suitcase|package|cart|table|cup|bottle|ladder|bicycle|tray|
        letter|key|phone|umbrella|shelf|basket|lamp""",
    "food": """coffee|tea|water|orange juice|sandwich|salad|soup|pizza|burger|apple pie|ice cream|
        milk|chicken|rice|pasta|cake|lemonade|toast|breakfast|lunch""",
    "document": "passport|ticket|receipt|boarding pass|card|form|badge|order number|reservation",
    "task": """cleaning the floor|delivering your order|charging my battery|looking for the door|
        checking the map|moving to the kitchen|carrying a package|waiting for the elevator|
        following you|returning to my base|opening the door|starting the engine|
        updating my software|scanning the room|taking a picture|counting the boxes""",
    "weather": "sunny|cloudy|rainy|windy|snowy|foggy|cold|warm|hot|dry",
    "color": "red|blue|green|yellow|white|black|orange|purple|silver|brown",
    "line": "red line|blue line|green line|yellow line|airport shuttle|night bus|express train",
    "person": """Anna|David|Emma|James|Laura|Michael|Sarah|Thomas|Peter|Mary|Robert|Julia|Daniel|
        Linda|Kevin|Susan|Mister Brown|Doctor Smith|Mister Jones|Doctor Miller""",
    "device": """printer|screen|camera|microphone|speaker|sensor|left wheel|right wheel|motor|
        network|heater|fan|light|door lock|card reader|scanner|payment system|left arm|gripper""",
    "part": "morning|afternoon|evening",
    "wish": "day|evening|journey|weekend|trip|flight|meal|night|morning|stay",
    "polite": "please|thank you",
    "unit": "meters|steps|feet|minutes|seconds",
    "animal": "dog|cat|bird|horse|child|person",
}  # fmt: skip

_TEMPLATES = """
Good {part}, welcome to the {place}.
Hello {person}, welcome back.
Hello, how can I help you today?
Good {part}, {person}. How are you?
Hi, my name is {person}. I am your robot guide.
Welcome aboard the {line} to {city}.
Nice to meet you, {person}.
Goodbye, and have a nice {wish}.
See you again on {day}.
Thank you for waiting. Have a nice {wish}.
Thank you for your help, {person}.
Thank you very much. Please come again.
You are welcome. Enjoy your {wish}.
Now serving number {n999} at {desk} {n20}.
Number {n999}, please go to {desk} {n20}.
Ticket {letter} {n99}, please proceed to {desk} {n20}.
Your number is {n9999}.
Your ticket number is {spelled}.
There are {n40} people ahead of you.
Your waiting time is about {n60} minutes.
Please take a ticket and wait for your number.
Please wait for {n60} minutes.
Please wait here until your number is called.
The next available {desk} is number {n20}.
Your order number {n999} is ready.
Order {n999} is ready at {desk} {n20}.
Your code is {spelled}.
Please enter the code {spelled}.
The password is {letters}.
Flight {letters2} {spelled3} to {city} is now boarding at gate {n60}.
Flight {letters2} {n999} from {city} has landed.
The next train to {city} leaves at {time} from platform {n20}.
The train from {city} will arrive at platform {n20} in {n60} minutes.
The {line} to {city} is {n60} minutes late.
The {line} will depart at {time}.
The bus to {city} leaves in {n60} minutes.
The {time} train to {city} has been cancelled.
Take the number {n99} bus to the {place}.
Change here for the {line}.
The next stop is the {place}.
This train stops at {city}, {city} and {city}.
The time is {time}.
It is now {time}.
It is {quarters}.
The {place} opens at {quarters} on {day}.
The {place} closes at {time}.
The {place} is open from {time} to {time}.
The {place} is closed on {day}.
Today is {day}, {date}.
Your appointment is on {date} at {time}.
Your appointment with {person} is at {quarters}.
The meeting starts at {quarters} in room {n999}.
My birthday is on {date}.
The sale ends on {date}.
Your package will arrive on {day}, {date}.
Please turn {side} at the {place}.
Turn {side}, then go straight ahead.
Go straight ahead for {n200} {unit}, then turn {side}.
In {n200} {unit}, turn {side}.
The {place} is on the {ordinal} floor.
The {place} is next to the {place}.
The {place} is on your {side}.
The {place} is behind the {place}.
The {place} is between the {place} and the {place}.
Take the elevator to the {ordinal} floor.
Go up the stairs and follow the {color} line.
Follow the {color} signs to the {place}.
Walk past the {place} and turn {side}.
You will find the {place} at the end of the hall.
Your room is number {n9999} on the {ordinal} floor.
You are the {ordinal} visitor today.
This is the {ordinal} time.
Going up. {ordinalc} floor.
Your total is {price}.
That will be {price}, please.
The {food} costs {price}.
A cup of {food} is {price}.
Your change is {price}.
Please insert {price}.
Please pay {price} at the {place}.
Would you like some {food} with your {food}?
One {food} and one {food}, please.
Your {food} is ready.
Enjoy your {food}.
Please insert your card.
Please remove your {document}.
Please show your {document} at the {place}.
Please keep your {document} with you.
Your {document} is not valid.
Your payment was accepted.
Your payment was not accepted. Please try again.
Please sign on the screen.
Press the {color} button to start.
Press {n9} for the {place}.
Touch the screen to continue.
Do not leave your bags unattended.
Please stand behind the {color} line.
Please mind the gap.
Please keep the door clear.
Doors are opening.
Doors are closing.
I am sorry, I did not understand. Please say that again.
I am sorry, the {place} is closed.
We are sorry for the delay.
We apologize for any inconvenience.
Sorry, the {device} is not working.
Sorry, there is no {food} left.
Excuse me, may I pass?
Excuse me, I am {task}.
My battery is at {n100} percent.
Battery low. {n20c} percent remaining.
My battery is low. I am returning to the {place}.
Charging complete. My battery is full.
I will be ready in {n60} minutes.
There is a {thing} in my way.
There is a {adjective} {thing} in front of me.
Please move the {adjective} {thing}.
Obstacle ahead. Stopping now.
Warning, the {device} is too hot.
The {device} is ready.
The {device} has failed. Please call for help.
Error {n999}. Please restart the {device}.
The {device} needs to be replaced.
Careful, there is a {animal} behind you.
I can see a {animal} near the {place}.
I am {task}.
I have finished {task}.
Please do not stop me while I am {task}.
I found {n20} {adjective} boxes on the {color} shelf.
I am stuck near the {place}.
I am on my way to the {place}.
I am bringing a {thing} to {person}.
{person}, your {thing} is at the {place}.
{person}, please come to the {place}.
{person}, please call extension {spelled3}.
Would {person} please come to {desk} {n20}.
A {color} {thing} was found near the {place}.
The {thing} is {color} and {color}.
The temperature is {n40} degrees.
Today is {day}, and the temperature is {n40} degrees.
It will be {weather} in {city} on {day}.
Tomorrow will be {weather} and {weather}.
It is {weather} outside, with {n100} percent humidity.
The speed is {n200} kilometers per hour.
The distance is {n9999} meters.
The year is {n9999}.
The answer is {n9999}.
{n20c} plus {n20} is {n40}.
Count with me: {n20}, {n20}, {n20}.
Please speak now.
Please speak after the tone.
Yes, that is correct.
No, that is not correct.
Okay, I will do that now.
Let me think about it.
One moment, please.
Follow me, please.
Stop. Do not move.
Emergency. Please leave the building now.
Please use the {place} on the {side}.
Please hold the handrail.
Smoking is not allowed in the {place}.
Wet floor. Please be careful.
Your message was sent to {person}.
You have {n20} new messages.
Calling {person} now.
Playing music in the {place}.
The lights in the {place} are on.
Set the timer for {n60} minutes.
The alarm is set for {time}.
Good night, {person}. Sleep well.
""".strip().splitlines()  # fmt: skip

_SLOT = re.compile(r"{(\w+)}")
# A template with at most this many sentences is closed.
_FEW = 60
_ARTICLE = re.compile(r"\b(a) (?=[aeiou])")
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_WORD = re.compile(r"[a-z']{2,}")
# Words that only come about when slots are filled.
_FIXED = "an and o'clock oh half past quarter to dollar dollars cent cents"


@dataclass(frozen=True)
class TextGenerator:
    """Endless sentences, none twice.

    Attributes:
        seed: The same seed gives the same sentences on every machine.
        without: Sentences that must not come: those of another set.
    """

    seed: int
    without: frozenset[str] = field(default=frozenset())

    def __iter__(self) -> Iterator[str]:
        source = random.Random(self.seed)
        seen = set(self.without)
        fills = _fills(source)
        while True:
            # Templates with more to choose from come more often than fixed sentences, which are
            # soon used up.
            sentence = _fill(source.choice(_TEMPLATES), fills)
            if sentence not in seen:
                seen.add(sentence)
                yield sentence

    def take(self, count: int) -> list[str]:
        """The first ``count`` sentences."""
        sentences = iter(self)
        return [next(sentences) for _ in range(count)]


def closed_sentences() -> list[str]:
    """All sentences of the templates that give few, in order.

    They are training data as a whole: held out, their words would not be heard in training at all.
    """
    lists = _word_lists()
    sentences = []
    for template in _TEMPLATES:
        names = _SLOT.findall(template)
        sizes = [len(lists[name]) for name in names if name in lists]
        if len(sizes) < len(names) or math.prod(sizes) > _FEW:
            continue
        for words in itertools.product(*(lists[name] for name in names)):
            fills = {name: iter([word]) for name, word in zip(names, words, strict=True)}
            sentences.append(
                _fill(template, {name: (lambda it=it: next(it)) for name, it in fills.items()})  # type: ignore[misc]
            )
    return sentences


def vocabulary() -> set[str]:
    """Every word that a sentence can have, in lower case."""
    parts = [*_TEMPLATES, *(word for words in _word_lists().values() for word in words)]
    text = " ".join(_SLOT.sub(" ", part) for part in parts)
    numbers = [say.cardinal(number) for number in (*range(100), 100, 1000)]
    numbers += [say.ordinal(number) for number in range(1, 100)]
    return set(_WORD.findall(f"{text} {' '.join([*numbers, *say.MONTHS])} {_FIXED}".lower()))


def _word_lists() -> dict[str, list[str]]:
    return {
        name: [" ".join(value.split()) for value in values.split("|")]
        for name, values in _LISTS.items()
    }


def _fill(template: str, fills: dict[str, Callable[[], str]]) -> str:
    parts = []
    for piece in template.split("{"):
        name, brace, rest = piece.partition("}")
        if not brace:
            parts.append(piece)
            continue
        parts.append(fills[name]())
        parts.append(rest)
    sentence = _ARTICLE.sub(r"\1n ", "".join(parts))
    return sentence[0].upper() + sentence[1:]


def _fills(source: random.Random) -> dict[str, Callable[[], str]]:
    def pick(values: list[str]) -> Callable[[], str]:
        return lambda: source.choice(values)

    def below(limit: int, low: int = 1) -> Callable[[], str]:
        def number() -> str:
            # Short numbers are as frequent as long ones.
            top = min(limit, 10 ** source.randint(1, len(str(limit))))
            return say.cardinal(source.randint(low, max(low, top)), joined=source.random() < 0.5)

        return number

    def drawn(characters: str, least: int, most: int | None) -> str:
        # The count is drawn only where there is a choice.
        count = least if most is None else source.randint(least, most)
        return " ".join(source.choice(characters) for _ in range(count))

    def letters(least: int, most: int | None = None) -> Callable[[], str]:
        return lambda: drawn(_LETTERS, least, most)

    def spelled(least: int, most: int | None = None) -> Callable[[], str]:
        return lambda: say.digits(drawn("0123456789", least, most).replace(" ", ""))

    def time() -> str:
        return say.clock(source.randint(1, 12), source.randint(0, 59))

    def price() -> str:
        kind = source.randrange(3)
        dollars = source.randint(1, 99) if kind else 0
        return say.price(dollars, source.randint(1, 99) if kind != 1 else 0)

    def capital(make: Callable[[], str]) -> Callable[[], str]:
        return lambda: make().capitalize()

    def ordinal() -> str:
        return say.ordinal(source.randint(1, 20 if source.random() < 0.7 else 99))

    lists = {name: pick(values) for name, values in _word_lists().items()}
    return {
        **lists,
        "n9": below(9),
        "n20": below(20),
        "n20c": capital(below(20)),
        "n40": below(40),
        "n60": below(60, 2),
        "n99": below(99),
        "n100": below(100),
        "n200": below(200, 2),
        "n999": below(999),
        "n9999": below(say.LARGEST, 0),
        "ordinal": ordinal,
        "ordinalc": capital(ordinal),
        "letter": letters(1),
        "letters": letters(3, 5),
        "letters2": letters(2),
        "spelled": spelled(3, 5),
        "spelled3": spelled(3),
        "time": time,
        "quarters": lambda: say.clock_in_quarters(source.randint(1, 12), 5 * source.randrange(12)),
        "date": lambda: say.date(source.randint(1, 12), source.randint(1, 31)),
        "price": price,
    }
