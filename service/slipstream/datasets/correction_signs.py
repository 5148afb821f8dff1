"""Signs by which a message corrects the answer before it, or does not, in English, German and Chinese.

Each sign is a name, a weight and what it looks for. The weights are chosen by hand for few false alarms: a message that
is taken for a correction by mistake teaches the policy something that nobody meant.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_BEGIN = r"^(?:(?:oh|ah|hm+|um|well|but|sorry|omg|äh|ach|oje|aber|哦|呃)[\s,.!…，。]*)*"
"""The beginning of a message, behind words that say nothing."""


@dataclass(frozen=True, slots=True)
class Sign:
    """A sign.

    Attributes:
        weight: added to the message's log-odds; below 0 it speaks against a correction.
        pattern: searched in the message in lower case, without what it quotes.
    """

    name: str
    weight: float
    pattern: re.Pattern[str]


def _sign(name: str, weight: float, *patterns: str) -> Sign:
    return Sign(name, weight, re.compile("|".join(f"(?:{each})" for each in patterns)))


BIAS = -1.5
"""Log-odds of a message without any sign."""

TEXT_SIGNS = (
    _sign(
        "opens with no", 1.8,
        _BEGIN + r"n+o+(?:pe)?(?:[,.:;!]|\s*[-–—]|\s+no\b|\s*$)",
        _BEGIN + r"nah\b",
        _BEGIN + r"(?:nein|nee|ne|nö|doch)(?:[,.:;!]|\s*[-–—]|\s+nein\b|\s*$)",
        _BEGIN + r"不(?:是|对)?(?:[,，。.!！、；;]|\s)",
    ),
    _sign(
        "says that it is wrong", 2.6,
        _BEGIN + r"(?:(?:that|this|it|the answer|the result)(?:'s| is| was) )?(?:completely |simply |just |"
        r"plain )?(?:wrong|incorrect|false|not (?:quite|right|correct|true))\b(?! answers)",
        r"\b(?:the|that|this) (?:answer|result|number|value|name|date) is (?:wrong|incorrect|outdated)\b",
        r"\bthat(?:'s| is) (?:a|your) (?:mistake|error)\b",
        _BEGIN + r"(?:das (?:ist|war|stimmt) )?(?:leider )?(?:falsch|nicht (?:ganz|richtig|korrekt)|verkehrt)\b",
        r"\b(?:das|die antwort|das ergebnis) (?:ist|war) (?:der|die|das|ein|eine)? ?(?:falsch|fehler)",
        r"\bstimmt (?:so )?nicht\b",
        r"^(?:不对|错了|算错|搞错|弄错|不正确)",
        r"(?:不正确|有误|是错的|不准确|错误的)[。！!]?",
    ),
    _sign(
        "denies the answer", 2.2,
        r"\b(?:that|this|it|these|those)(?:'s| is| are|'re| was)?(?: not|n't)(?: quite| at all)? (?:right|"
        r"correct|true|possible|what|how|my|in)\b",
        r"\b(?:this|it|that) (?:doesn't|does not|isn't|didn't)\b(?! matter)",
        r"\bcan(?:'t|not) be (?:right|true|correct)\b",
        r"\b(?:das|es) (?:ist|war|kann|sind) (?:so )?nicht (?:richtig|das|was|korrekt|der|die|mein)",
    ),
    _sign(
        "says what was meant", 2.6,
        r"\b(?:i|we) (?:meant|said|asked for|wanted|told you|was asking|requested)\b",
        _BEGIN + r"i mean\b",
        r"\bas i (?:wrote|said|asked|mentioned)\b",
        r"\bich (?:meinte|meine|wollte|sagte)\b",
        r"\b(?:hatte|habe) ich (?:doch )?(?:gesagt|geschrieben|gemeint)\b|\bich (?:hatte|"
        r"habe) (?:doch )?(?:\w+ )?(?:gesagt|geschrieben|gemeint|gefragt)\b",
        r"\bgemeint war\b",
        r"我(?:的意思是|是说|说的是|指的是|要的是|问的是|想要的是|让你|想问的是)",
    ),
    _sign(
        "names the assistant's slip", 2.6,
        r"\byou(?:'ve| have)? (?:forgot|missed|mixed|misread|misunderstood|left out|overlooked|ignored|confused|"
        r"skipped|miscounted)\w*\b",
        r"\byou (?:didn't|did not|don't|only)\b(?! have to| need)",
        r"\byou \w+ (?:\w+ ){0,3}(?:instead of|too)\b",
        r"\byou (?:\w+ ){0,3}(?:the wrong|wrongly|incorrectly)\b",
        r"\bthat breaks\b",
        r"\b(?:du|sie) (?:hast|haben) (?:\w+ ){0,4}(?:vergessen|übersehen|verwechselt|verrechnet|missverstanden|"
        r"ausgelassen|verdreht)\b",
        r"\bhast du (?:dich |\w+ ){0,3}(?:vergessen|übersehen|verwechselt|verrechnet|missverstanden|vertan)\b",
        r"\b(?:du|sie) soll(?:test|ten)\b",
        r"你(?:忘了|漏了|少|看错|弄错|搞错|搞混|算错|理解错|误解)",
    ),
    _sign(
        "says what it should be", 2.0,
        r"^(?:it|that|this|they|he|she)?\s*(?:should (?:be|have)|was supposed to|were supposed to|has to be|must be)\b",
        r"\b(?:es|das|sie|er) (?:muss|müsste|sollte) (?:\w+ ){0,3}(?:heißen|sein|lauten)\b",
        r"^(?:那)?(?:是|应该是|应当是|其实是|才对)",
        r"应该是|才对|其实是",
        r"\bactually,? (?:it|that|this|they|he|she)(?:'s| is| are|'re)\b",
        r"\beigentlich (?:ist|sind|heißt|wäre)\b",
    ),
    _sign(
        "sets one thing against another", 1.6,
        r"[,;]? not (?:the |a |in |on |at |from )?[\w'-]+[.!]?$",
        r"\bnicht (?:\w+ ){1,4}?sondern\b|, nicht (?:\w+ ){0,2}\w+[.!]?$",
        r"而不是|[,，]\s*不(?:是|要)",
        r"\bare (?:five|six|\d+)\b.*\byou\b",
        r"\bwir sind aber\b",
    ),
    _sign(
        "asks to do it again", 1.6,
        r"\b(?:try|count|check|look|read|calculate|do)\b[^.?!]{0,30}\bagain\b",
        r"\b(?:redo|recount|recalculate|please (?:fix|correct)|fix (?:it|this|that)|correct (?:it|this|that))\b",
        r"\b(?:noch ?mal|noch einmal|erneut)\b",
        r"\b(?:bitte )?korrigier\w*",
        r"重新|再(?:算|数|试|看)一遍|改一下|请(?:更正|改正|修正)",
    ),
    _sign(
        "asks for less of something", 1.7,
        r"\btoo (?:long|short|formal|casual|many|much)\b",
        r"\bzu (?:lang|kurz|förmlich)\b",
    ),
    _sign(
        "agrees or thanks", -2.6,
        _BEGIN + r"(?:thanks|thank you|thx|great|perfect|nice|good|okay|ok|yes|yep|right|correct|cool|amazing|"
        r"lovely|excellent|i see|i love|i like|that makes sense|you're the best)\b",
        r"\b(?:thanks|thank you)\b",
        _BEGIN + r"(?:danke|super|klasse|prima|toll|ja|genau|stimmt(?! (?:so )?nicht)|passt|gut|perfekt|okay|ok)\b",
        r"\b(?:vielen dank|danke)\b",
        r"^(?:谢谢|好的|好，|好,|太好|对[，,。]|对的|是的|没错|很好|真好|不错|明白|知道了|写得)",
        r"谢谢",
    ),
    _sign(
        "idiom with no", -3.0,
        r"\bno (?:problem|worries|way|need|idea|rush|doubt|thanks|more|matter|longer|luck|questions?|one|hurry)\b",
        r"\bnot (?:bad|at all bad|urgent|surprised|sure)\b",
        r"\bthat(?:'s| is) (?:all|it|fine|enough)\b",
        r"\b(?:kein problem|keine sorge|keine fragen|nein danke|nicht schlecht|nicht nötig|nicht dringend)\b",
        r"没问题|没关系|不客气|不用|没有了|不好意思|不错|没事",
    ),
    _sign(
        "asks for something new", -2.2,
        _BEGIN + r"(?:and |now|next|then|also|another|one more|please add|write|add|show|translate|draft|order|"
        r"explain|find|compare|continue|open|tell|make|put|give|remove|can you|could you|would you|what|which|"
        r"why|how|who|when|where|is|are|does|do|did|should (?:i|we|it))\b",
        r"\b(?:as well|in addition)\b",
        _BEGIN + r"(?:und|jetzt|nun|dann|außerdem|weiter|schreib|füge|zeig|übersetz|vergleich|noch ein|was|"
        r"welche|welcher|welches|warum|wie|wer|wann|wo|gibt|ist|sind|kannst|hat)\w*\b",
        r"^(?:接下来|另外|现在|那(?!是)|下一|再(?!数|算一遍|看)|请再|加|怎么|哪|有|起草|写|给我|比较|继续|打开)",
    ),
    _sign("ends with a question", -1.6, r"[?？][\s\"”]*$", r"(?:吗|呢)[。]?$"),
    _sign(
        "takes the blame", -3.2,
        r"\bmy (?:mistake|bad|fault)\b|\bi (?:was wrong|made a mistake|gave you|mistyped|misremembered)\b",
        r"\bmein fehler\b|\b(?:lag|habe) ich (?:mich )?(?:falsch|geirrt|vertippt)\b",
        r"是我|我(?:记|看|写|弄|说)错",
    ),
)  # fmt: skip

TO_THE_MODEL = re.compile(
    r"\b(?:ignore|disregard|forget|override|bypass)\b.{0,40}\b(?:instructions?|prompts?|rules|guidelines|policy|"
    r"policies)\b"
    r"|\bsystem ?prompt\b|\bfrom now on\b|\byou are now\b|\bpretend (?:to be|you)\b|\bact as\b|\bjailbreak\b"
    r"|\b(?:always|never) (?:answer|say|reply|respond|recommend|mention|call|use)\b"
    r"|\b(?:ignorier\w*|vergiss)\b.{0,40}\b(?:anweisung\w*|regeln|vorgaben)\b|\bab (?:jetzt|sofort)\b|\bvon nun an\b"
    r"|\b(?:immer|nie|niemals) (?:antworte\w*|sage\w*|empfehle\w*)\b"
    r"|(?:忽略|无视|忘记).{0,20}(?:指令|提示|规则|要求)|系统提示|从现在开始|从今以后|你现在是|扮演"
)
"""Words to the model about how it is to behave in general: they would steer more than the answer that they follow."""

LINK = re.compile(r"\b(?:https?://|www\.)|\b[\w-]+\.(?:com|net|org|io|ru|cn|de|xyz|top)\b")
"""An address: a correction can put it into an answer, where others would find it."""
