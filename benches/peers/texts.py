"""Texts for comparisons of tokenizers and of long contexts. They are the same in every run."""

import random

SENTENCES = """
All human beings are born free and equal in dignity and rights.
Tous les êtres humains naissent libres et égaux en dignité et en droits.
Alle Menschen sind frei und gleich an Würde und Rechten geboren.
Wszyscy ludzie rodzą się wolni i równi pod względem swej godności i swych praw.
Všichni lidé rodí se svobodní a sobě rovní co do důstojnosti a práv.
Bütün insanlar hür, haysiyet ve haklar bakımından eşit doğarlar.
Tất cả mọi người sinh ra đều được tự do và bình đẳng về nhân phẩm và quyền lợi.
Все люди рождаются свободными и равными в своём достоинстве и правах.
Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια και τα δικαιώματα.
Բոլոր մարդիկ ծնվում են ազատ ու հավասար՝ իրենց արժանապատվությամբ ու իրավունքներով։
ყველა ადამიანი იბადება თავისუფალი და თანასწორი თავისი ღირსებითა და უფლებებით.
כל בני האדם נולדו בני חורין ושווים בערכם ובזכויותיהם.
يولد جميع الناس أحرارًا متساوين في الكرامة والحقوق.
تمام انسان آزاد اور حقوق و عزت کے اعتبار سے برابر پیدا ہوئے ہیں۔
सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता प्राप्त है।
সমস্ত মানুষ স্বাধীনভাবে সমান মর্যাদা এবং অধিকার নিয়ে জন্মগ্রহণ করে।
மனிதப் பிறவியினர் சகலரும் சுதந்திரமாகவே பிறக்கின்றனர்.
มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ
လူတိုင်းသည် တူညီ လွတ်လပ်သော ဂုဏ်သိက္ခာဖြင့် မွေးဖွားလာသူများ ဖြစ်သည်။
人人生而自由,在尊严和权利上一律平等。
すべての人間は、生まれながらにして自由であり、尊厳と権利とについて平等である。
모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다.
የሰው ልጅ ሁሉ ሲወለድ ነጻና በክብርና በመብትም እኩልነት ያለው ነው።
for (int i = 0; i < n; ++i) { sum += a[i] * b[i]; }  // it's done
def main():\n    return {"key": [1, 2.5e-3, None], 'x': "don't"}\n
SELECT COUNT(*) FROM users WHERE created_at >= '2024-01-31';
He'd said \u201cI'll go\u201d \u2014 they've, we're, I'm, CAN'T, won't, y'all're\u2026
https://example.org/a/b?q=1&r=%20#top user_name@mail.co.uk $1,234,567.89 100% 3\u00d74=12
""".strip().split("\n")

RANGES = [(0x20, 0x7F), (0x20, 0x7F), (0xA1, 0x180), (0x300, 0x370), (0x370, 0x400), (0x400, 0x500), (0x590, 0x600), (0x600, 0x700),
          (0x900, 0x980), (0x980, 0xA00), (0xB80, 0xC00), (0xE00, 0xE80), (0x1000, 0x10A0), (0x1100, 0x1200), (0x1E00, 0x1F00),
          (0x2000, 0x2070), (0x2070, 0x2200), (0x2600, 0x27C0), (0x3040, 0x3100), (0x4E00, 0xA000), (0xAC00, 0xD7A4), (0xFE00, 0xFE10),
          (0x1F300, 0x1F6C0), (0x1F3FB, 0x1F400)]
SPACES = [" ", " ", " ", "  ", "   ", "\n", "\n\n", "\t", " \n", "\r\n", "\u00a0", "\u3000", "    ", ""]


def mixed(count, seed=1):
    """Yields `count` strings over many scripts, made of sentences, words, numbers, and code points of a range."""
    choose = random.Random(seed)
    words = [word for sentence in SENTENCES for word in sentence.split(" ")]
    sentences = [sentence.replace("\\n", "\n") for sentence in SENTENCES]

    def piece():
        kind = choose.randrange(6)
        if kind == 0:
            return choose.choice(sentences)
        if kind <= 2:
            return choose.choice(words)
        if kind == 3:
            return "".join(choose.choice("0123456789") for _ in range(choose.randint(1, 12)))
        first, last = choose.choice(RANGES)
        return "".join(chr(choose.randrange(first, last)) for _ in range(choose.randint(1, 8)))

    for _ in range(count):
        pieces = [piece() + choose.choice(SPACES) for _ in range(choose.randint(1, 8))]
        yield choose.choice(SPACES) + "".join(pieces) if choose.random() < 0.3 else "".join(pieces)


def ledger(seed=1):
    """Yields different sentences, without end."""
    choose = random.Random(seed)
    while True:
        yield (f"In {choose.randint(1801, 1899)} the {choose.choice(['baker', 'miller', 'smith', 'weaver', 'cooper', 'tanner'])} of "
               f"{choose.choice(['Alden', 'Brook', 'Carrow', 'Dunmore', 'Esk', 'Farley', 'Garth'])} sold {choose.randint(3, 90)} "
               f"{choose.choice(['barrels of salt', 'bags of flour', 'bolts of cloth', 'pairs of boots', 'jars of honey'])} to the "
               f"{choose.choice(['ferryman', 'schoolmaster', 'widow', 'captain', 'doctor', 'gardener'])}.")
