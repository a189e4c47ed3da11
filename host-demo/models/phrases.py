"""A small grammar that generates English sentences with their Hindi translations, used by `translator.py` for training.

    python phrases.py 20        # prints some of them
"""

import random
import sys


# --- people ----------------------------------------------------------------------------------

class Who:
    """A subject. `kind` is the agreement of a Hindi verb: m or f (masculine or feminine singular), M or F (the same in
    the plural or as a polite form), i (I), t (you)."""
    def __init__(self, english, hindi, agent, dative, possessive, kind, female=False, be="is"):
        self.english, self.hindi, self.agent, self.dative = english, hindi, agent, dative
        self.possessive, self.kind, self.female, self.be = possessive, kind, female, be

    @property
    def third(self):
        return self.be == "is"

    @property
    def was(self):
        return "were" if self.be == "are" else "was"

    @property
    def ending(self):
        """The ending of Hindi participles, as in ता, ते, ती."""
        return "ी" if self.female else "ा" if self.kind in "mi" else "े"

    @property
    def am(self):
        return {"i": "हूँ", "t": "हो", "m": "है", "f": "है"}.get(self.kind, "हैं")

    @property
    def had(self):
        """The past of the Hindi "to be": था, थे, थी or थीं."""
        if self.female:
            return "थीं" if self.kind == "F" else "थी"
        return "था" if self.kind in "mi" else "थे"


PRONOUNS = [
    Who("I", "मैं", "मैंने", "मुझे", "मेर", "i", be="am"),
    Who("I", "मैं", "मैंने", "मुझे", "मेर", "i", be="am"),
    Who("you", "तुम", "तुमने", "तुम्हें", "तुम्हार", "t", be="are"),
    Who("he", "वह", "उसने", "उसे", "उसक", "m"),
    Who("she", "वह", "उसने", "उसे", "उसक", "f", female=True),
    Who("we", "हम", "हमने", "हमें", "हमार", "M", be="are"),
    Who("they", "वे", "उन्होंने", "उन्हें", "उनक", "M", be="are"),
]


def named(english, hindi, female):
    return Who(english, hindi, hindi + " ने", hindi + " को", hindi + " क", "f" if female else "m", female)


NAMES = [named("Tom", "टॉम", False), named("Tom", "टॉम", False), named("Mary", "मैरी", True),
         named("John", "जॉन", False), named("Ram", "राम", False), named("Sita", "सीता", True)]

# Each entry: English, Hindi, the oblique form of the Hindi, and its agreement: m, f or M (polite).
KIN = [("mother", "माँ", "माँ", "f"), ("father", "पिताजी", "पिताजी", "M"), ("brother", "भाई", "भाई", "m"),
       ("sister", "बहन", "बहन", "f"), ("son", "बेटा", "बेटे", "m"), ("daughter", "बेटी", "बेटी", "f"),
       ("wife", "पत्नी", "पत्नी", "f"), ("husband", "पति", "पति", "M"), ("friend", "दोस्त", "दोस्त", "m"),
       ("uncle", "चाचा", "चाचा", "M"), ("aunt", "चाची", "चाची", "f"), ("grandmother", "दादी", "दादी", "f"),
       ("grandfather", "दादाजी", "दादाजी", "M"), ("teacher", "शिक्षक", "शिक्षक", "M"), ("family", "परिवार", "परिवार", "m")]
OWNERS = [("my", "मेर"), ("your", "तुम्हार"), ("his", "उसक"), ("her", "उसक"), ("our", "हमार"), ("their", "उनक")]
BELOVED = [*KIN[:14], KIN[14], ("country", "देश", "देश", "m"), ("dog", "कुत्ता", "कुत्ते", "m"),
           ("cat", "बिल्ली", "बिल्ली", "f"), ("city", "शहर", "शहर", "m"), ("house", "घर", "घर", "m"), ("job", "काम", "काम", "m")]


def of(stem, gender, oblique=False):
    """Returns a possessive in agreement with a noun, such as मेरा, मेरे or मेरी of the stem मेर."""
    return stem + {"f": "ी", "F": "ी", "M": "े"}.get(gender, "े" if oblique else "ा")


def relative(rng):
    """Returns a relative as a subject, such as "my mother"."""
    (owner, stem), (english, hindi, oblique, gender) = rng.choice(OWNERS), rng.choice(KIN)
    whose = of(stem, gender, True) + " " + oblique
    return Who(f"{owner} {english}", of(stem, gender) + " " + hindi, whose + " ने", whose + " को", whose + " क",
               gender, gender == "f")


def subject(rng):
    return rng.choice([*PRONOUNS, rng.choice(NAMES), relative(rng)])


def somebody(rng, objects):
    """An object: English, and the Hindi oblique used with को."""
    kind = rng.random()
    if kind < 0.35:
        pronouns = [("me", "मुझ"), ("you", "तुम"), ("him", "उस"), ("her", "उस"), ("us", "हम"), ("them", "उन")]
        return rng.choice(pronouns)
    if kind < 0.55:
        who = rng.choice(NAMES)
        return who.english, who.hindi
    (owner, stem), (english, _, oblique, gender) = rng.choice(OWNERS), rng.choice(objects)
    return f"{owner} {english}", of(stem, gender, True) + " " + oblique


def to(oblique):
    short = {"मुझ": "मुझे", "तुम": "तुम्हें", "उस": "उसे", "हम": "हमें", "उन": "उन्हें"}
    return short.get(oblique, oblique + " को")


# --- verbs -----------------------------------------------------------------------------------

# The perfective forms m, M and f of each Hindi stem.
VERBS = {
    "कर": ("किया", "किए", "की"), "जा": ("गया", "गए", "गई"), "खा": ("खाया", "खाए", "खाई"), "पी": ("पिया", "पिए", "पी"),
    "देख": ("देखा", "देखे", "देखी"), "पढ़": ("पढ़ा", "पढ़े", "पढ़ी"), "लिख": ("लिखा", "लिखे", "लिखी"),
    "बोल": ("बोला", "बोले", "बोली"), "रह": ("रहा", "रहे", "रही"), "आ": ("आया", "आए", "आई"), "सो": ("सोया", "सोए", "सोई"),
    "खेल": ("खेला", "खेले", "खेली"), "खरीद": ("खरीदा", "खरीदे", "खरीदी"), "बना": ("बनाया", "बनाए", "बनाई"),
    "सीख": ("सीखा", "सीखे", "सीखी"), "गा": ("गाया", "गाए", "गाई"), "तैर": ("तैरा", "तैरे", "तैरी"), "दौड़": ("दौड़ा", "दौड़े", "दौड़ी"),
    "सुन": ("सुना", "सुने", "सुनी"), "चला": ("चलाया", "चलाए", "चलाई"), "मिल": ("मिला", "मिले", "मिली"), "बैठ": ("बैठा", "बैठे", "बैठी"),
    "हँस": ("हँसा", "हँसे", "हँसी"), "रो": ("रोया", "रोए", "रोई"), "बेच": ("बेचा", "बेचे", "बेची"), "खोल": ("खोला", "खोले", "खोली"),
    "ढूँढ": ("ढूँढा", "ढूँढे", "ढूँढी"), "भूल": ("भूला", "भूले", "भूली"), "नाच": ("नाचा", "नाचे", "नाची"), "लौट": ("लौटा", "लौटे", "लौटी"), "समझ": ("समझा", "समझे", "समझी"),
}
# Third person, past and -ing form of irregular English verbs.
IRREGULAR = {
    "go": ("goes", "went", "going"), "eat": ("eats", "ate", "eating"), "drink": ("drinks", "drank", "drinking"),
    "see": ("sees", "saw", "seeing"), "read": ("reads", "read", "reading"), "write": ("writes", "wrote", "writing"),
    "speak": ("speaks", "spoke", "speaking"), "come": ("comes", "came", "coming"), "sleep": ("sleeps", "slept", "sleeping"),
    "buy": ("buys", "bought", "buying"), "make": ("makes", "made", "making"), "sing": ("sings", "sang", "singing"),
    "swim": ("swims", "swam", "swimming"), "run": ("runs", "ran", "running"), "drive": ("drives", "drove", "driving"),
    "meet": ("meets", "met", "meeting"), "sit": ("sits", "sat", "sitting"), "sell": ("sells", "sold", "selling"),
    "watch": ("watches", "watched", "watching"), "teach": ("teaches", "taught", "teaching"), "do": ("does", "did", "doing"),
    "study": ("studies", "studied", "studying"), "live": ("lives", "lived", "living"), "love": ("loves", "loved", "loving"),
    "hate": ("hates", "hated", "hating"), "cry": ("cries", "cried", "crying"), "forget": ("forgets", "forgot", "forgetting"),
    "understand": ("understands", "understood", "understanding"), "invite": ("invites", "invited", "inviting"),
    "dance": ("dances", "danced", "dancing"), "use": ("uses", "used", "using"),
    "miss": ("misses", "missed", "missing"), "smoke": ("smokes", "smoked", "smoking"), "wash": ("washes", "washed", "washing"),
}
# Each entry: English verb, English complement, Hindi text before the verb, stem of the Hindi verb, and agreement of the
# verb's perfective: m, M or f if the perfective agrees with such an object, "-" if it agrees with the subject.
ACTS = [
    ("go", "to school", "स्कूल", "जा", "-"), ("go", "to the market", "बाज़ार", "जा", "-"), ("go", "home", "घर", "जा", "-"),
    ("go", "to Delhi", "दिल्ली", "जा", "-"), ("go", "to India", "भारत", "जा", "-"), ("go", "to the hospital", "अस्पताल", "जा", "-"),
    ("go", "there", "वहाँ", "जा", "-"), ("come", "here", "यहाँ", "आ", "-"), ("come", "home", "घर", "आ", "-"), ("come", "back", "वापस", "आ", "-"),
    ("eat", "food", "खाना", "खा", "m"), ("eat", "rice", "चावल", "खा", "M"), ("eat", "bread", "रोटी", "खा", "f"), ("eat", "an apple", "एक सेब", "खा", "m"),
    ("eat", "meat", "माँस", "खा", "m"), ("eat", "fish", "मछली", "खा", "f"), ("drink", "water", "पानी", "पी", "m"), ("drink", "tea", "चाय", "पी", "f"),
    ("drink", "coffee", "कॉफ़ी", "पी", "f"), ("drink", "milk", "दूध", "पी", "m"), ("watch", "television", "टीवी", "देख", "m"), ("watch", "a movie", "एक फ़िल्म", "देख", "f"),
    ("read", "a book", "एक किताब", "पढ़", "f"), ("read", "this book", "यह किताब", "पढ़", "f"), ("read", "the newspaper", "अख़बार", "पढ़", "m"),
    ("write", "a letter", "एक चिट्ठी", "लिख", "f"), ("write", "a book", "एक किताब", "लिख", "f"), ("speak", "English", "अंग्रेज़ी", "बोल", "-"),
    ("speak", "Hindi", "हिन्दी", "बोल", "-"), ("speak", "French", "फ़्रांसीसी", "बोल", "-"), ("live", "in Delhi", "दिल्ली में", "रह", "-"), ("live", "in India", "भारत में", "रह", "-"),
    ("live", "in Tokyo", "टोक्यो में", "रह", "-"), ("live", "in this house", "इस घर में", "रह", "-"), ("live", "in a village", "एक गाँव में", "रह", "-"), ("live", "here", "यहाँ", "रह", "-"),
    ("play", "cricket", "क्रिकेट", "खेल", "m"), ("play", "tennis", "टेनिस", "खेल", "m"), ("play", "football", "फ़ुटबॉल", "खेल", "m"), ("play", "in the garden", "बगीचे में", "खेल", "-"),
    ("buy", "a house", "एक घर", "खरीद", "m"), ("buy", "a new car", "एक नई गाड़ी", "खरीद", "f"), ("buy", "a pen", "एक कलम", "खरीद", "f"), ("buy", "bread", "रोटी", "खरीद", "f"),
    ("make", "tea", "चाय", "बना", "f"), ("cook", "", "खाना", "बना", "m"), ("learn", "Hindi", "हिन्दी", "सीख", "f"), ("learn", "English", "अंग्रेज़ी", "सीख", "f"),
    ("sing", "a song", "एक गाना", "गा", "m"), ("sing", "", "गाना", "गा", "m"), ("listen", "to music", "संगीत", "सुन", "m"), ("listen", "to the radio", "रेडियो", "सुन", "m"),
    ("drive", "a car", "गाड़ी", "चला", "f"), ("sell", "the house", "घर", "बेच", "m"), ("open", "the door", "दरवाज़ा", "खोल", "m"), ("open", "the window", "खिड़की", "खोल", "f"),
    ("work", "", "काम", "कर", "m"), ("work", "here", "यहाँ काम", "कर", "m"), ("work", "in a bank", "बैंक में काम", "कर", "m"), ("study", "", "पढ़ाई", "कर", "f"),
    ("wait", "", "इंतज़ार", "कर", "m"), ("dance", "", "", "नाच", "-"), ("sleep", "", "", "सो", "-"), ("sleep", "well", "अच्छे से", "सो", "-"), ("swim", "", "", "तैर", "-"),
    ("run", "", "", "दौड़", "-"), ("run", "fast", "तेज़", "दौड़", "-"), ("cry", "", "", "रो", "-"), ("laugh", "", "", "हँस", "-"), ("sit", "there", "वहाँ", "बैठ", "-"),
    ("study", "English", "अंग्रेज़ी", "पढ़", "f"), ("do", "the work", "काम", "कर", "m"), ("smoke", "", "धूम्रपान", "कर", "m"), ("understand", "Hindi", "हिन्दी", "समझ", "-"),
    ("return", "home", "घर", "लौट", "-"), ("look", "for work", "काम", "ढूँढ", "m"), ("stay", "at home", "घर पर", "रह", "-"), ("stay", "here", "यहाँ", "रह", "-"),
]
# The same for verbs with a person. In the Hindi text, {} is the person, {to} the person as an object, and {of} the stem of
# the person's possessive.
DEEDS = [("love", "", "{} से प्यार", "कर", "m"), ("love", "", "{} से प्यार", "कर", "m"), ("help", "", "{of}ी मदद", "कर", "f"), ("hate", "", "{} से नफ़रत", "कर", "f"),
         ("see", "", "{to}", "देख", "m"), ("meet", "", "{} से", "मिल", "-"), ("trust", "", "{} पर भरोसा", "कर", "m"), ("miss", "", "{to} याद", "कर", "m"),
         ("wait", "for", "{of}ा इंतज़ार", "कर", "m"), ("talk", "to", "{} से बात", "कर", "f"), ("call", "", "{to} फ़ोन", "कर", "m"), ("visit", "", "{} से", "मिल", "-"),
         ("live", "with", "{of}े साथ", "रह", "-"), ("go", "with", "{of}े साथ", "जा", "-"), ("play", "with", "{of}े साथ", "खेल", "-"), ("understand", "", "{to}", "समझ", "m"),
         ("look", "for", "{to}", "ढूँढ", "m"), ("respect", "", "{of}ी इज़्ज़त", "कर", "f"), ("like", "", "{to} पसंद", "कर", "m")]
OF_ALL = {"love", "hate", "miss", "see", "like", "look"}  # also used with a house
STATES = {"love", "hate", "trust", "like", "understand", "respect", "see"}


def forms(verb):
    if verb in IRREGULAR:
        return IRREGULAR[verb]
    return verb + "s", verb + "ed", verb + "ing"


def future(who, stem):
    vowel = stem[-1] in "ाीोएआ"
    end = {"i": "ऊँग" if vowel else "ूँग", "t": "ओग" if vowel else "ोग", "m": "एग" if vowel else "ेग"}
    stem = {"पी": "पि"}.get(stem, stem)
    return stem + end.get("m" if who.kind == "f" else who.kind, "एँग" if vowel else "ेंग") + who.ending


def act(rng, who):
    """A verb with its complements."""
    if rng.random() < 0.5:
        return rng.choice(ACTS)
    verb, word, pattern, stem, agreement = rng.choice(DEEDS)
    objects = BELOVED if verb in OF_ALL else KIN
    if rng.random() < 0.45:
        own = {"I": "my", "you": "your", "he": "his", "she": "her", "we": "our", "they": "their"}
        own = own.get(who.english, "her" if who.female else "his")
        english, _, hindi, gender = rng.choice(objects)
        english, hindi = f"{own} {english}", of("अपन", gender, True) + " " + hindi
    else:
        # Avoids "I ... my", and ambiguous possessives.
        avoid = {"I": ("me", "my", "us"), "you": ("you", "your"), "we": ("us", "our", "me"), "they": ("them", "their")}
        avoid = avoid.get(who.english, ("her",) if who.female else ("his",))
        while True:
            english, hindi = somebody(rng, objects)
            if english.split()[0] not in avoid and english != who.english:
                break
    stems = {"मुझ": "मेर", "तुम": "तुम्हार", "हम": "हमार", "उस": "उसक", "उन": "उनक"}
    hindi = pattern.format(hindi, to=to(hindi), of=stems.get(hindi, hindi + " क"))
    return verb, f"{word} {english}".strip(), hindi, stem, agreement


TIMES = [("today", "आज"), ("now", "अभी"), ("every day", "हर रोज़"), ("often", "अक्सर")]
LATER = [("tomorrow", "कल"), ("today", "आज"), ("next week", "अगले हफ़्ते"), ("next year", "अगले साल"), ("soon", "जल्दी")]
BEFORE = [("yesterday", "कल"), ("today", "आज"), ("last week", "पिछले हफ़्ते"), ("last night", "कल रात"), ("last year", "पिछले साल")]


def sentence_of_verb(rng):
    who = subject(rng)
    verb, rest, hindi, stem, agreement = act(rng, who)
    third, past, ing = forms(verb)
    e, h = who.english, who.hindi
    tense = rng.choice(["now", "now", "now", "doing", "later", "later", "past", "past", "can", "want", "must", "was doing"])
    if verb in STATES and tense in ("doing", "was doing"):
        tense = "now"
    no, ask = rng.random() < 0.22, rng.random() < 0.15
    nahin = "नहीं" if no else ""
    times = {"now": TIMES, "doing": TIMES[:2], "later": LATER, "past": BEFORE}.get(tense, [])
    time_e, time_h = rng.choice(times) if times and rng.random() < 0.3 else ("", "")
    often = time_e == "often"
    end = f"{rest} {'' if often else time_e}"
    between = "often" if often and not ask else ""
    if often and (ask or no):
        time_h, between = "", ""
    auxiliary, middle = None, verb
    if tense == "now":
        auxiliary = "does" if who.third else "do"
        finite = f"{between} {third if who.third else verb}"
        tail = f"{hindi} {nahin} {stem}त{who.ending} {who.am}"
    elif tense == "doing":
        auxiliary, middle, finite = who.be, ing, f"{who.be} {ing}"
        tail = f"{hindi} {nahin} {stem} रह{who.ending} {who.am}"
    elif tense == "was doing":
        auxiliary, middle, finite = who.was, ing, f"{who.was} {ing}"
        tail = f"{hindi} {nahin} {stem} रह{who.ending} {who.had}"
    elif tense == "later":
        auxiliary, finite = "will", f"will {verb}"
        tail = f"{hindi} {nahin} {future(who, stem)}"
    elif tense == "past":
        auxiliary, finite = "did", past
        m, many, f = VERBS[stem]
        if agreement == "-":
            form = f if who.female else m if who.kind in "mi" else many
        else:
            h, form = who.agent, {"m": m, "M": many, "f": f}[agreement]
        tail = f"{hindi} {nahin} {form}"
    elif tense == "can":
        auxiliary, finite = "can", f"can {verb}"
        tail = f"{hindi} {nahin} {stem} सकत{who.ending} {who.am}"
    elif tense == "want":
        auxiliary, middle, finite = ("does" if who.third else "do"), f"want to {verb}", f"{'wants' if who.third else 'want'} to {verb}"
        tail = f"{hindi} {nahin} {stem}ना चाहत{who.ending} {who.am}"
    else:
        h = who.dative
        ask = no = False
        finite = rng.choice(["must", "has to" if who.third else "have to", "should"]) + " " + verb
        infinitive = stem + ("नी" if agreement == "f" else "ने" if agreement == "M" else "ना")
        tail = f"{hindi} {infinitive} " + ("चाहिए" if finite.startswith("should") else "होगा" if infinitive.endswith("ना") else "होगी" if agreement == "f" else "होंगे")
    if ask:
        if auxiliary in ("do", "does", "did", "can", "will", "am", "is", "are", "was", "were"):
            word = auxiliary + ("n't" if no and auxiliary != "am" and auxiliary not in ("can", "will") else "")
            if no and word == auxiliary:
                return sentence_of_verb(rng)
            return f"{word} {e} {middle} {end}", f"क्या {h} {time_h} {tail}", "?"
    if no:
        negated = {"can": "cannot", "will": "will not", "am": "am not"}.get(auxiliary) or rng.choice([auxiliary + " not", auxiliary + "n't"])
        return f"{e} {negated} {middle} {end}", f"{h} {time_h} {tail}", "."
    return f"{e} {finite} {end}", f"{h} {time_h} {tail}", "."


# --- adjectives and nouns -----------------------------------------------------------------

# Adjectives in -ा agree with their noun.
OF_PEOPLE = [("happy", "खुश"), ("sad", "दुखी"), ("tired", "थका हुआ"), ("tall", "लम्बा"), ("young", "जवान"), ("poor", "गरीब"), ("rich", "अमीर"), ("busy", "व्यस्त"),
             ("sick", "बीमार"), ("strong", "ताकतवर"), ("good", "अच्छा"), ("beautiful", "सुंदर"), ("famous", "मशहूर"), ("angry", "गुस्सा"), ("ready", "तैयार"), ("right", "सही"), ("honest", "ईमानदार"), ("old", "बूढ़ा"), ("alone", "अकेला")]
OF_THINGS = [("big", "बड़ा"), ("small", "छोटा"), ("new", "नया"), ("old", "पुराना"), ("good", "अच्छा"), ("beautiful", "सुंदर"), ("expensive", "महंगा"), ("cheap", "सस्ता"), ("red", "लाल"), ("white", "सफ़ेद"),
             ("black", "काला"), ("blue", "नीला"), ("heavy", "भारी"), ("interesting", "दिलचस्प"), ("clean", "साफ़"), ("bad", "बुरा")]
# Each entry: English; Hindi singular, plural and oblique; gender.
THINGS = [("book", "किताब", "किताबें", "किताब", "f"), ("house", "घर", "घर", "घर", "m"), ("car", "गाड़ी", "गाड़ियाँ", "गाड़ी", "f"), ("dog", "कुत्ता", "कुत्ते", "कुत्ते", "m"),
          ("cat", "बिल्ली", "बिल्लियाँ", "बिल्ली", "f"), ("room", "कमरा", "कमरे", "कमरे", "m"), ("pen", "कलम", "कलमें", "कलम", "f"), ("flower", "फूल", "फूल", "फूल", "m"),
          ("tree", "पेड़", "पेड़", "पेड़", "m"), ("chair", "कुर्सी", "कुर्सियाँ", "कुर्सी", "f"), ("table", "मेज़", "मेज़ें", "मेज़", "f"), ("bag", "थैला", "थैले", "थैले", "m"),
          ("question", "सवाल", "सवाल", "सवाल", "m"), ("watch", "घड़ी", "घड़ियाँ", "घड़ी", "f"), ("hat", "टोपी", "टोपियाँ", "टोपी", "f"), ("letter", "चिट्ठी", "चिट्ठियाँ", "चिट्ठी", "f"),
          ("shirt", "कमीज़", "कमीज़ें", "कमीज़", "f"), ("river", "नदी", "नदियाँ", "नदी", "f"), ("door", "दरवाज़ा", "दरवाज़े", "दरवाज़े", "m"), ("apple", "सेब", "सेब", "सेब", "m")]
PEOPLE = [("doctor", "डॉक्टर"), ("teacher", "शिक्षक"), ("student", "छात्र"), ("farmer", "किसान"), ("good person", "अच्छा इंसान")]
DESIRES = [("water", "पानी"), ("tea", "चाय"), ("coffee", "कॉफ़ी"), ("music", "संगीत"), ("dogs", "कुत्ते"), ("cats", "बिल्लियाँ"), ("this book", "यह किताब"), ("this city", "यह शहर"),
           ("that song", "वह गाना"), ("flowers", "फूल"), ("apples", "सेब"), ("fish", "मछली"), ("English", "अंग्रेज़ी"), ("Hindi", "हिन्दी"), ("history", "इतिहास"), ("winter", "सर्दी"), ("cricket", "क्रिकेट")]
PLURAL = {"कुत्ते", "बिल्लियाँ", "फूल", "सेब"}
NOT = ["do not", "don't"]
FEELINGS = [("hungry", "भूख", "ी"), ("thirsty", "प्यास", "ी"), ("cold", "ठंड", "ी"), ("afraid", "डर", "ा")]
NUMBERS = [("two", "दो"), ("three", "तीन"), ("four", "चार"), ("five", "पाँच"), ("six", "छह"), ("seven", "सात"), ("ten", "दस")]


def inflected(adjective, gender):
    if adjective.endswith("नया"):
        return {"f": "नई", "F": "नई", "M": "नए", "m": "नया"}[gender]
    words = []
    for word in adjective.split():
        if word == "हुआ":
            word = {"f": "हुई", "F": "हुई", "M": "हुए", "m": "हुआ"}[gender]
        elif word.endswith("ा"):
            word = word[:-1] + {"f": "ी", "F": "ी", "M": "े", "m": "ा"}[gender]
        words.append(word)
    return " ".join(words)


def agreement_of(who):
    return "f" if who.female else "m" if who.kind in "mi" else "M"


def be(rng, who):
    """Returns a form of the English "be" and its Hindi equivalent, sometimes negated (not, नहीं)."""
    no, past = rng.random() < 0.25, rng.random() < 0.25
    verb, end = (who.was, who.had) if past else (who.be, who.am)
    return verb + (" not" if no else ""), ("नहीं " if no else "") + end


def sentence_of_being(rng):
    who = subject(rng)
    verb, end = be(rng, who)
    kind = rng.random()
    if kind < 0.5:
        english, hindi = rng.choice(OF_PEOPLE)
        hindi = inflected(hindi, agreement_of(who))
        very = rng.random() < 0.3
        if rng.random() < 0.2 and "not" not in verb:
            return f"{verb} {who.english} {english}", f"क्या {who.hindi} {hindi} {end}", "?"
        return f"{who.english} {verb} {'very' if very else ''} {english}", f"{who.hindi} {'बहुत' if very else ''} {hindi} {end}", "."
    if kind < 0.75 and who.english not in ("we", "they"):
        english, hindi = rng.choice(PEOPLE)
        return f"{who.english} {verb} {'an' if english[0] in 'aeiou' else 'a'} {english}", f"{who.hindi} एक {inflected(hindi, agreement_of(who))} {end}", "."
    places = [("at home", "घर पर"), ("in the garden", "बगीचे में"), ("at school", "स्कूल में"), ("in the room", "कमरे में"), ("in India", "भारत में"), ("here", "यहाँ"), ("in Delhi", "दिल्ली में")]
    english, hindi = rng.choice(places)
    return f"{who.english} {verb} {english}", f"{who.hindi} {hindi} {end}", "."


def sentence_of_things(rng):
    english, one, many, oblique, gender = rng.choice(THINGS)
    colour, quality = rng.choice(OF_THINGS)
    plural = "F" if gender == "f" else "M"
    owner, stem = rng.choice(OWNERS)
    kind = rng.randrange(11)
    who = subject(rng)
    a = f"{'an' if english[0] in 'aeiou' else 'a'} {english}"
    if kind == 0:
        return f"this {english} is {colour}", f"यह {one} {inflected(quality, gender)} है", "."
    if kind == 1:
        return f"{owner} {english} is {colour}", f"{of(stem, gender)} {one} {inflected(quality, gender)} है", "."
    if kind == 2:
        return f"this is {owner} {english}", f"यह {of(stem, gender)} {one} है", "."
    if kind == 3:
        return f"is this {owner} {english}", f"क्या यह {of(stem, gender)} {one} है", "?"
    if kind == 4:
        return f"where is {owner} {english}", f"{of(stem, gender)} {one} कहाँ है", "?"
    if kind == 5:
        return f"these {english}s are {colour}", f"ये {many} {inflected(quality, plural)} हैं", "."
    if kind == 6:
        number, hindi = rng.choice(NUMBERS)
        relation = who.possessive + "े पास"
        return f"{who.english} {'has' if who.third else 'have'} {number} {english}s", f"{relation} {hindi} {many} हैं", "."
    if kind == 7:
        relation = who.possessive + "े पास"
        past = rng.random() < 0.3
        article = "an" if colour[0] in "aeiou" else "a"
        have = "had" if past else "has" if who.third else "have"
        end = ("थी" if gender == "f" else "था") if past else "है"
        return f"{who.english} {have} {article} {colour} {english}", f"{relation} एक {inflected(quality, gender)} {one} {end}", "."
    if kind == 8:
        return f"{who.english} {'needs' if who.third else 'need'} {a}", f"{who.dative} एक {one} चाहिए", "."
    if kind == 9:
        return f"that {english} is very {colour}", f"वह {one} बहुत {inflected(quality, gender)} है", "."
    things = [("on the table", "मेज़ पर"), ("in the room", "कमरे में"), ("in the house", "घर में"), ("in the box", "डिब्बे में"), ("under the tree", "पेड़ के नीचे")]
    where, there = rng.choice(things)
    if rng.random() < 0.5:
        return f"the {english} is {where}", f"{one} {there} है", "."
    return f"there is {a} {where}", f"{there} एक {one} है", "."


def sentence_of_feeling(rng):
    who = subject(rng)
    e, d = who.english, who.dative
    kind = rng.randrange(9)
    if kind < 4:
        thing, hindi = rng.choice(DESIRES)
        many = "हैं" if hindi in PLURAL else "है"
        if kind == 0:
            return f"{'does' if who.third else 'do'} {e} like {thing}", f"क्या {d} {hindi} पसंद {many}", "?"
        if kind == 1:
            return f"{e} {'does not' if who.third else rng.choice(NOT)} like {thing}", f"{d} {hindi} पसंद नहीं {many}", "."
        return f"{e} {'likes' if who.third else 'like'} {thing}", f"{d} {hindi} पसंद {many}", "."
    if kind == 4:
        feeling, hindi, gender = rng.choice(FEELINGS)
        past = rng.random() < 0.3
        verb, end = (who.was, "थ" + gender) if past else (who.be, "है")
        return f"{e} {verb} {feeling}", f"{d} {hindi} लग रह{gender} {end}", "."
    if kind == 5:
        thing, hindi = rng.choice([("to swim", "तैरना"), ("Hindi", "हिन्दी"), ("to sing", "गाना"), ("to cook", "खाना बनाना"), ("to drive", "गाड़ी चलाना")])
        if thing == "Hindi":
            return f"{e} {'knows' if who.third else 'know'} Hindi", f"{d} हिन्दी आती है", "."
        return f"{e} {'knows' if who.third else 'know'} how {thing}", f"{d} {hindi} आता है", "."
    if kind == 6:
        no = rng.random() < 0.4
        if no:
            return f"{e} {'does not' if who.third else 'do not'} know", f"{d} पता नहीं", "."
        return f"{e} {'knows' if who.third else 'know'} that", f"{d} यह पता है", "."
    if kind == 7:
        thing, hindi = rng.choice([("help", "मदद"), ("money", "पैसों"), ("a doctor", "एक डॉक्टर"), ("time", "समय"), ("a friend", "एक दोस्त"), ("rest", "आराम")])
        return f"{e} {'needs' if who.third else 'need'} {thing}", f"{d} {hindi} की ज़रूरत है", "."
    part, hindi = rng.choice([("headache", "सिरदर्द"), ("cold", "जुकाम"), ("fever", "बुखार")])
    return f"{e} {'has' if who.third else 'have'} a {part}", f"{d} {hindi} है", "."


def sentence_of_asking(rng):
    who = rng.choice(PRONOUNS[2:])
    e, h = who.english, who.hindi
    verb = "does" if who.third else "do"
    kind = rng.randrange(9)
    if kind == 0:
        return f"where {verb} {e} live", f"{h} कहाँ रहत{who.ending} {who.am}", "?"
    if kind == 1:
        return f"where {who.be} {e}", f"{h} कहाँ {who.am}", "?"
    if kind == 2:
        return f"what {who.be} {e} doing", f"{h} क्या कर रह{who.ending} {who.am}", "?"
    if kind == 3:
        return f"when will {e} come", f"{h} कब {future(who, 'आ')}", "?"
    if kind == 4:
        return f"why {who.be} {e} crying", f"{h} क्यों रो रह{who.ending} {who.am}", "?"
    if kind == 5:
        return f"what {verb} {e} want", f"{h} क्या चाहत{who.ending} {who.am}", "?"
    if kind == 6:
        return f"where did {e} go", f"{h} कहाँ {'गई' if who.female else 'गया' if who.kind == 'm' else 'गए'}", "?"
    (owner, stem), (english, hindi, _, gender) = rng.choice(OWNERS), rng.choice(KIN[:13])
    if kind == 7:
        return f"where is {owner} {english}", f"{of(stem, gender)} {hindi} कहाँ {'हैं' if gender == 'M' else 'है'}", "?"
    if rng.random() < 0.5:
        return f"how is {owner} {english}", f"{of(stem, gender)} {hindi} {inflected('कैसा', gender)} {'हैं' if gender == 'M' else 'है'}", "?"
    return f"what is {owner} name", f"{of(stem, 'm')} नाम क्या है", "?"


ORDERS = [("Open the door", "दरवाज़ा खोलो"), ("Close the door", "दरवाज़ा बंद करो"), ("Open the window", "खिड़की खोलो"), ("Close the window", "खिड़की बंद करो"), ("Come here", "यहाँ आओ"),
          ("Go home", "घर जाओ"), ("Sit down", "बैठ जाओ"), ("Stand up", "खड़े हो जाओ"), ("Drink some water", "थोड़ा पानी पियो"), ("Read this book", "यह किताब पढ़ो"), ("Listen to me", "मेरी बात सुनो"),
          ("Wait for me", "मेरा इंतज़ार करो"), ("Help me", "मेरी मदद करो"), ("Speak slowly", "धीरे बोलो"), ("Eat your food", "अपना खाना खाओ"), ("Wash your hands", "अपने हाथ धोओ"), ("Give me the book", "मुझे किताब दो"),
          ("Give me some water", "मुझे थोड़ा पानी दो"), ("Tell me the truth", "मुझे सच बताओ"), ("Come with me", "मेरे साथ आओ"), ("Look at me", "मुझे देखो"), ("Call me tomorrow", "मुझे कल फ़ोन करो"), ("Write your name", "अपना नाम लिखो"),
          ("Show me the picture", "मुझे तस्वीर दिखाओ"), ("Do your work", "अपना काम करो"), ("Follow me", "मेरे पीछे आओ"), ("Be careful", "ध्यान से रहो"), ("Be quiet", "चुप रहो")]
SET_PHRASES = [("Good morning", "सुप्रभात", "."), ("Good night", "शुभ रात्रि", "."), ("Hello", "नमस्ते", "."), ("Hello", "नमस्ते", "!"), ("Thank you", "धन्यवाद", "."), ("Thank you very much", "बहुत धन्यवाद", "."),
               ("How are you", "आप कैसे हैं", "?"), ("I am fine", "मैं ठीक हूँ", "."), ("What is your name", "तुम्हारा नाम क्या है", "?"), ("My name is Tom", "मेरा नाम टॉम है", "."), ("My name is Mary", "मेरा नाम मैरी है", "."),
               ("My name is Ram", "मेरा नाम राम है", "."), ("What is this", "यह क्या है", "?"), ("What is that", "वह क्या है", "?"), ("Who are you", "तुम कौन हो", "?"), ("Who is he", "वह कौन है", "?"), ("It is raining", "बारिश हो रही है", "."),
               ("It is very cold today", "आज बहुत ठंड है", "."), ("It is hot today", "आज गर्मी है", "."), ("I love you", "मैं तुमसे प्यार करता हूँ", "."), ("Do you love me", "क्या तुम मुझसे प्यार करते हो", "?"), ("I am sorry", "मुझे माफ़ करना", "."),
               ("What time is it", "कितने बजे हैं", "?"), ("See you tomorrow", "कल मिलते हैं", "."), ("Welcome to India", "भारत में आपका स्वागत है", "."), ("No problem", "कोई बात नहीं", "."), ("Please help me", "कृपया मेरी मदद कीजिए", ".")]


def sentence_of_ordering(rng):
    if rng.random() < 0.35:
        return rng.choice(SET_PHRASES)
    english, hindi = rng.choice(ORDERS)
    kind = rng.random()
    if kind < 0.2:
        return f"please {english[0].lower()}{english[1:]}", f"कृपया {hindi}", "."
    if kind < 0.35 and not english.startswith("Be "):
        before, _, verb = hindi.rpartition(" ")
        return f"do not {english[0].lower()}{english[1:]}", f"{before} मत {verb}", "."
    return english, hindi, "."


def pair(rng):
    """A sentence and its translation."""
    kinds = [sentence_of_verb, sentence_of_being, sentence_of_things, sentence_of_feeling, sentence_of_asking, sentence_of_ordering]
    english, hindi, end = rng.choices(kinds, [10, 3, 4, 3, 1, 1])[0](rng)
    english, hindi = " ".join(english.split()), " ".join(hindi.split())
    for apart, joined in [("मुझ से", "मुझसे"), ("तुम से", "तुमसे"), ("उस से", "उससे"), ("हम से", "हमसे"), ("उन से", "उनसे"),
                          ("मुझ पर", "मुझपर"), ("तुम पर", "तुमपर"), ("उस पर", "उसपर"), ("हम पर", "हमपर"), ("उन पर", "उनपर")]:
        hindi = f" {hindi} ".replace(f" {apart} ", f" {joined} ").strip()
    english = english[0].upper() + english[1:] + end
    return english, hindi + ("।" if end == "." else end)


if __name__ == "__main__":
    rng = random.Random(1)
    for _ in range(int(sys.argv[1]) if len(sys.argv) > 1 else 20):
        print(*pair(rng), sep="\t")
