"""What the words alone say about a turn: whether they are open-ended, or only a sound of listening.

Pure word lists and patterns for English and Korean; unknown languages get the cautious answer (not open, not a
backchannel). Lists are short on purpose: each entry is one that people really end a pause on.
"""

import re

_OPEN_LAST_WORDS = frozenset(
    """and or but because so if when while that which who with to of for from in on at by about into than as the a an
    my your his her our their is are was were i'm it's um uh er like then plus""".split()
)
_OPEN_KO_ENDINGS = ("그리고", "그런데", "그래서", "하지만", "근데", "어", "음", "그", "저기")
_NUMBER_WORDS = frozenset(
    """zero oh one two three four five six seven eight nine ten eleven twelve double triple hundred dash dot at
    underscore""".split()
)
_ASKED_FOR_NUMBER = re.compile(
    r"\b(number|phone|code|card|account|zip|pin|e-?mail|address|order|reference|spell(ed|t)?|(reach|call|ring) me)\b",
    re.IGNORECASE,
)
_SPELLED = re.compile(r"\b(?:[A-Za-z][-. ,]+){2,}[A-Za-z]\b[.,]?\s*$")
_SPELLING_BEGUN = re.compile(r"\bspell(?:ed|t|ing)?\b.*\b[B-HJ-Zb-hj-z]\b\W*$")
_ADDRESS_BEGUN = re.compile(
    r"\be-?mail(?: address)?(?: is| was|:)\W+(?!.*(?:@|\bat\b.*)\S*\.\s?[a-z]{2,}\b)"
    r"|\baddress(?: is| was|:)\W+(?!.*(?:\d|@|\.\s?[a-z]{2,}\b))",
    re.IGNORECASE,
)
# a request, an opinion or a condition that has only been announced; Whisper writes a full stop or even "?" behind it
_ONLY_BEGUN = re.compile(
    r"""^(?:(?:well|so|okay|ok|and|but|hey|hi|hello|yes|no),?\ )*
    (?:(?:can|could|would|will)\ you(?:\ please)?(?:\ (?:tell|show|give|explain|send|read|find|remind)
            (?:\ (?:me|us))?)?
     |(?:please\ )?(?:tell|show|give|remind|send)\ (?:me|us)(?:\ (?:to|about)(?:\ (?:call|ask|tell|send|write))?)?
     |(?:please\ )?(?:write|note)\ (?:it\ )?down(?:\ (?:that|it))?
     |do\ you\ (?:know|think|remember)|you\ know|i\ mean
     |(?:what|the\ thing)\ (?:i|we)\ (?:want|wanted|need|mean)(?:\ to\ (?:ask|know|say))?(?:\ is)?
     |i(?:\ would|'d)?\ (?:like|love|want|wanted|need|have)\ to(?:\ (?:know|ask|say|tell|hear|see|go|buy|book))?
     |i(?:\ just)?\ (?:think|thought|guess|believe|hope|was\ wondering|wonder)(?:\ (?:that|though|if|it'?s|they'?ll))?
     |the\ (?:thing|point|problem|question)\ is|how\ long\ does\ it\ take(?:\ to)?
     |(?:well|so|okay\ so|now|listen|look|actually|anyway|maybe|also|hey|because)
    )\W*$""",
    re.IGNORECASE | re.VERBOSE,
)
_CONDITION = re.compile(
    r"""^(?:(?:well|so|and|but|okay),?\ )?
    (?:if|because|although|unless|whenever|since
     |(?:when|before|after|while)(?=\ (?:i|we|you|they|he|she|it|the|my)\b))\b[^,;]*$""",
    re.IGNORECASE | re.VERBOSE,
)
_CLOSED_AFTER_ALL = re.compile(
    r"\b(?:(?:hang|hold|come|go|carry|move)\ on|(?<!think\ )(?<!say\ )(?<!said\ )(?<!hope\ )(?<!down\ )that)\W*$",
    re.IGNORECASE | re.VERBOSE,
)
_LONG_ENOUGH_DIGITS = 7  # the shortest telephone number people dictate

BACKCHANNELS = frozenset(
    """mm mmm mhm mm-hmm mhmm mmhmm mm-hm hm hmm hmmm m uh-huh uhhuh uh huh uhm um ah aha oh ooh yeah yep yes yup ok
    okay right sure good great nice cool wow really interesting i see got it of course exactly true 네 예 응 음
    어 아 그래요 그렇군요 맞아요 아하 오""".split()
) | {"i", "see", "got", "it", "of", "course"}
_ASKED_WHILE_LISTENING = frozenset(
    {"okay", "ok", "really", "oh", "yeah", "yes"}
)  # "Okay?" is only its melody
_NEVER_ALONE = frozenset({"i", "it", "of", "see", "got", "course"})
_MOST_BACKCHANNEL_WORDS = 3
_FEWEST_QUESTION_WORDS = 5  # "You know?" and "Right?" are also asked in the middle


def words_of(text: str) -> list[str]:
    """Lower-case words without punctuation; an inner hyphen or apostrophe stays."""
    return re.findall(r"\w+(?:[-'’]\w+)*", text.lower())


def is_open_ended(text: str) -> bool:
    """Whether more must come: a hanging conjunction, or digits, letters or an address still being dictated."""
    words = words_of(text)
    if not words:
        return False
    if _ONLY_BEGUN.match(text.strip()):
        return True
    if text.rstrip().endswith("?"):
        return False
    if _CONDITION.match(text.strip()):
        return True
    if (
        (words[-1] in _OPEN_LAST_WORDS and not _CLOSED_AFTER_ALL.search(text))
        or words[-1].endswith(_OPEN_KO_ENDINGS[:5])
        or text.rstrip().endswith("...")
    ):
        return True
    return _is_dictating(text, words)


def is_whole_question(text: str) -> bool:
    """Whether the words are a question that waits for nothing more; the end-of-turn model misses some of them."""
    asked = text.rstrip().endswith("?") and len(words_of(text)) >= _FEWEST_QUESTION_WORDS
    return asked and not is_open_ended(text)


def _is_dictating(text: str, words: list[str]) -> bool:
    """A run of digits at the end that is too short for what was announced, or letters being spelled."""
    if _SPELLED.search(text) or _SPELLING_BEGUN.search(text) or _ADDRESS_BEGUN.search(text):
        return True
    digits = 0
    for word in reversed(words):
        bare = word.replace("-", "")
        if not (bare.isdigit() or word in _NUMBER_WORDS):
            break
        digits += len(bare) if bare.isdigit() else 1
    announced = bool(_ASKED_FOR_NUMBER.search(text))
    if announced and digits:
        return digits < _LONG_ENOUGH_DIGITS
    return 3 <= digits < _LONG_ENOUGH_DIGITS


def is_backchannel(text: str) -> bool:
    """Whether the words only say "I am listening", so that the one who speaks should go on."""
    words = words_of(text)
    if not words or len(words) > _MOST_BACKCHANNEL_WORDS:
        return False
    if text.rstrip().endswith("?") and not _ASKED_WHILE_LISTENING.issuperset(words):
        return False
    if len(words) == 1 and words[0] in _NEVER_ALONE:
        return False
    return all(word in BACKCHANNELS for word in words)
