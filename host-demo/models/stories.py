"""A grammar that generates short stories.

    python stories.py [count] [seed]      print some stories

A plot is a text with choices:

    [a|b|c]     a random one of these; choices may be nested or empty
    [C:a|A:b]   `a` only when the hero is a child, `b` only when it is an animal
    {x}         a word bound in the plot's head, otherwise one of the RULES, expanded each time
    {h.he}      a form of a character: `h` the hero, `f` the friend, `e` the elder

The head of a plot binds words once for the whole story: the ball that is found is the ball
that was lost. `a/b = x/y|z/w` binds related words. The friend and the elder never have the
hero's gender, so every "he" and "she" is unambiguous.
"""

import random
import re
import sys

GIRLS = "Mia Lily Anna Ella Rose Lucy Sara Emma Nina Zoe Ruby Clara Amy Maya Ivy Tina Leah Nora Eva Molly".split()
BOYS = "Tom Ben Max Sam Leo Jack Tim Noah Finn Luke Oscar Adam Paul Henry Peter Eli Hugo Dan Theo Will".split()
SHE_ANIMALS = "Hazel Poppy Daisy Luna Willow Pearl Dot Fern Coco Mimi".split()
HE_ANIMALS = "Pip Barley Milo Bruno Teddy Moss Rusty Otto Toby Gus".split()
KINDS = "rabbit fox mouse bear squirrel hedgehog duck frog turtle beaver badger otter mole".split()
ELDERS = {"she": ["Mom", "Mama", "Grandma", "Mom"], "he": ["Dad", "Papa", "Grandpa", "Dad"]}
FORMS = {"she": ("she", "her", "her", "herself"), "he": ("he", "him", "his", "himself")}


class Who:
    """A character: a name and its pronouns."""

    def __init__(self, name, gender, kind, animal):
        self.name, self.kind = name, kind
        self.he, self.him, self.his, self.himself = FORMS[gender]
        self.He, self.His, self.low = self.he.capitalize(), self.his.capitalize(), name.lower()
        self.full = f"{name} the {kind}" if animal else name

    def __str__(self):
        return self.name


def cast(rng):
    """The world (child or animal), and its hero, friend and elder."""
    animal = rng.random() < 0.45
    mine, other = rng.sample(["she", "he"], 2)
    names = {"she": SHE_ANIMALS, "he": HE_ANIMALS} if animal else {"she": GIRLS, "he": BOYS}
    kinds = rng.sample(KINDS, 2) if animal else ["girl", "boy"] if mine == "she" else ["boy", "girl"]
    return "A:" if animal else "C:", {
        "h": Who(rng.choice(names[mine]), mine, kinds[0], animal),
        "f": Who(rng.choice(names[other]), other, kinds[1], animal),
        "e": Who(rng.choice(ELDERS[other]), other, "elder", False),
    }


# --- the grammar's machinery ---------------------------------------------------------------

def parse(text):
    """Parses a text with choices into a tree: a list of strings, ("field", name) and ("choice", options);
    an option is its world ("" for both) and its tree."""
    tokens = iter(re.findall(r"(?:(?<=[\[|])|^)[CA]:|[\[\]|]|\{[^}]*\}|[^\[\]|{]+", text))

    def choice():
        options, world, tree = [], "", []
        for token in tokens:
            if token in "|]":
                options.append((world, tree))
                world, tree = "", []
                if token == "]":
                    return "choice", options
            elif token in ("C:", "A:"):
                world = token
            elif token == "[":
                tree.append(choice())
            else:
                tree.append(("field", token[1:-1]) if token[0] == "{" else token)
        return "choice", options + [(world, tree)]

    return [choice()]


def expand(tree, words, world, rng):
    out = []
    for node in tree:
        if isinstance(node, str):
            out.append(node)
        elif node[0] == "choice":
            fit = [option for its, option in node[1] if its in ("", world)]
            out.append(expand(rng.choice(fit), words, world, rng))
        else:
            name, _, form = node[1].partition(".")
            if name not in words:
                out.append(expand(RULES[name], words, world, rng))
            else:
                out.append(str(getattr(words[name], form) if form else words[name]))
    return "".join(out)


def polish(text):
    """Corrects spaces, full stops, a/an, and capitals, which the grammar's texts ignore."""
    text = re.sub(r"\s+", " ", text).strip()
    text = re.sub(r" ([,.!?])", r"\1", text)
    text = re.sub(r'([.!?]),"', r'\1"', text)  # "Why?," she said.
    text = re.sub(r'([.!?]")\.', r"\1", text)  # It went "Moo!".
    text = re.sub(r"\b([Aa]) (?=[aeiou])", r"\1n ", text)
    text = re.sub(r'(^"?|[.!?] "?|\." )([a-z])', lambda m: m[1] + m[2].upper(), text)
    return text.replace('" "', '"\n\n"')  # a new paragraph for each speaker


def story(rng, weights=None):
    """One story: paragraphs with an empty line between. Plots are equally frequent, unless weights are given."""
    world, words = cast(rng)
    fit = [i for i, plot in enumerate(PLOTS) if plot[0] in ("", world)]
    head, body = PLOTS[rng.choices(fit, [weights[i] for i in fit])[0] if weights else rng.choice(fit)][1:]
    for names, tree in head:
        values = expand(tree, words, world, rng).strip().split("/")
        words.update(zip(names, (value.strip() for value in values), strict=True))
    return "\n\n".join(polish(expand(p, words, world, rng)) for p in body)


def load(text):
    """Plots from their text: a `== title` line, the head, an empty line, then paragraphs.
    "(animal)" in the title restricts the plot to animals."""
    for block in re.split(r"^== ", text, flags=re.M)[1:]:
        first, *paragraphs = re.split(r"\n\s*\n", block.strip())
        title, *lines = first.split("\n")
        head = [line.split(" = ", 1) for line in lines]
        yield ("A:" if "(animal)" in title else "",
               [([name.strip() for name in names.split("/")], parse(value)) for names, value in head],
               [parse(paragraph) for paragraph in paragraphs])


# --- words and phrases for all plots -------------------------------------------------------

RULES_TEXT = """
trait = little|little|kind|curious|cheerful|gentle|clever|young|playful|friendly|small|quiet|happy
intro = a {trait} {h.kind} [named|named|called] {h}
home = [in a [small|quiet|little] village [by the sea|between two hills|near a wide river]
    |C:in a [little|tall|yellow|white|red] house [on a quiet street|at the edge of town|on top of a hill|near the woods]
    |C:on a [small|busy|sunny] farm|C:next to a [big park|bakery|little school]
    |A:in a [cozy|warm|tiny] [little|] house [under an old oak tree|beside a quiet pond|at the foot of a hill]
    |A:at the edge of a [green|deep|quiet] forest|A:in a [green|sunny|peaceful] [valley|meadow]
    |A:on the bank of a [slow|clear|winding] river]
family = C:[mom and dad|grandma and grandpa|mother, father and baby brother|family]|A:[family|mother and father|six brothers and sisters|old grandma]
love = [C:draw pictures|C:read books about the sea|C:ride a red bike|C:build tall towers|C:paint with bright colors|C:play the piano
    |A:roll down the hill|A:nap in the sun|A:nibble sweet berries|A:collect smooth stones|A:watch the clouds go by
    |sing silly songs|climb trees|look at the stars|ask questions|splash in puddles|tell funny stories|dance in the rain
    |explore new places|listen to the birds|pick flowers|play outside]
fine = sunny|sunny|bright|warm|lovely|fine
season = spring|summer|autumn
day = [One|One|One] {fine} [morning|day|afternoon]|One day|One day|One [spring|summer|autumn] [day|morning]
    |Early one morning|On a {fine} {season} [day|morning|afternoon]|One windy [day|afternoon]
open = [Once upon a time,|Once upon a time,|A long time ago,|] there was {intro}. [{more}|{more}|]
    |Once upon a time, {home}, there lived {intro}. {h.He} loved to {love}.
    |There once was {intro} who [lived {home}|loved to {love}].
    |{home} lived {intro}. [{h.He} loved to {love}.|]
    |{h} was a {trait} {h.kind} who [lived {home}|loved to {love}].
    |{h} {hkind} lived {home} with {h.his} {family}. [{h.He} loved to {love}.|]
    |{h} lived {home}[ with {h.his} {family}|]. [{h.He} was a {trait} {h.kind}[ who loved to {love}|].|]
more = {h.He} lived {home}[ with {h.his} {family}|].|{h.He} loved to {love}.|{h.He} lived {home} and loved to {love}.
hkind = C:|A:the {h.kind}
begin = [{open} {day}, {h.he}|{open} {day}, {h}|{open} {day}, {h}|{day}, {intro}]
pals = {h} and {f} were [best|very good|the best of] friends. [They played together [every day|from morning until night|after lunch every day].|They did everything together.|They liked to {love} together.|]
    |Once upon a time, there were two friends named {h} and {f}. [They lived {home}.|They liked to {love} together.|They did everything together.]
    |{h} [C:|A:the {h.kind}|] had a friend named {f}. [They both loved to {love}.|They lived {home}.|]
    |There was {intro} who had a very good friend[ named {f}.|. The friend's name was {f}.]
    |{home} lived two friends, {h.full} and {f.full}. [They liked to {love} together.|]
glad = happy|happy|glad
proud = [proud|very proud|so proud of {h.himself}]
warmly = [smiled|laughed|smiled and nodded|gave {h.him} a [big|warm|long] hug]
sleep = That night, {h} [fell asleep with a smile|slept very well|went to bed happy|lay in bed and smiled|dreamed {sweet} dreams]
    |When the [moon|stars] came out, {h} [was already fast asleep|fell asleep with a smile on {h.his} face]
sweet = [sweet|happy|long, sweet]
since = From that day on,|After that day,|Ever since then,|From then on,
then = Then|At last,|Just then,|Suddenly,
quick = [ran|hurried|raced|rushed]
oh = [Oh, no!|Oh, dear!|Oh!]
thank = Thank you[| so much| very much]
day2 = one day|one {fine} [morning|day|afternoon]|one {season} [morning|day]|one windy day
meanwhile = for a [long time|while|moment]
"""

RULES = {}
for rule in re.split(r"\n(?=\w+ = )", RULES_TEXT.strip()):
    name, text = rule.split(" = ", 1)
    RULES[name] = parse(text)

# --- the plots -----------------------------------------------------------------------------

PLOTS = list(load("""
== the lost toy
t = ball|kite|teddy bear|drum|doll|boat|train|music box|wooden horse|whistle|yellow hat|book|button box|toy car|lantern
c = red|blue|green|old|little|shiny|pretty|soft|striped
s1/s2 = C:[under the bed/behind the sofa|in the kitchen/in the garden|in every drawer/under every chair|behind the door/in the big box]|A:[under the leaves/behind the big rock|in the tall grass/under the bushes|behind the old log/by the stream]
at/spot = [the pond/in the tall grass|the old oak tree/between the roots|the bridge/beside the water|the hill/under a bush|the garden/behind the roses|C:the park/under a bench|C:the playground/next to the slide|A:the berry patch/under a leaf]

{open} {h.His} favorite thing in the [whole world|world] was a {c} {t}. [{h.He} took it everywhere.|{e} had given it to {h.him}.|Every night, it sat beside {h.his} bed.|{h.He} had gotten it from {e}.]

[But one [morning|day|evening]|{day}], the {t} was [gone|nowhere to be found]. [{h} looked {s1}. {h.He} looked {s2}. It was not there.|{h} looked {s1} and {s2}, but [it was not there|{h.he} could not find it].|{h.He} looked {s1}, but found only [dust|a spider|an old sock]. {h.He} looked {s2}, but found nothing at all.] [{h} began to cry.|A big tear rolled down {h.his} cheek.|{h.He} felt very sad.|{h} sat down and sighed.]

"What is wrong?" asked [{f}|{h.his} friend {f}|{f}, who was walking by]. ["I lost my {t}," said {h}.|"My {c} {t} is gone!" said {h}. "I have looked everywhere."|"I can't find my {t}," {h} [whispered|said]. "It is my favorite."] "Don't [worry|cry|be sad]," said {f}. "[I will help you look|We will find it together|Two can look better than one]. [Where did you play with it last?|When did you see it last?|Where were you yesterday?]" [{h} thought hard. "I was at {at}!" {h.he} said.|{h} thought {meanwhile}. "At {at}!" {h.he} [cried|shouted].]

[The two friends|They|{h} and {f}] {quick} to {at}. They looked [here and there|up and down|high and low]. [{f} looked {spot}.|Then {f} pointed. "What is that, {spot}?"|Something {spot} [was shining in the sun|caught {h.his} eye].] [There was the {t}!|It was the {c} {t}!|And there it was, [a little wet|a little dirty|safe and sound]!|A tiny [mouse|bird|kitten] was sleeping on it, but it was the {t}!]

[{h} hugged the {t}. Then {h.he} hugged {f}, too.|{h} was so {glad} that {h.he} danced around {f}.|{h} jumped for joy.] "{thank}, {f}!" {h.he} said. ["You are a true friend."|"I could not have found it without you."|"Now let's play with it together!"] [{since} {h} always put the {t} [away|back in its place] [before bed|at the end of the day].|And they played with the {t} until [the sun went down|it was time for dinner].|{sleep}, with the {t} in {h.his} arms.]

== the lost baby animal
b/ma/call = duckling/mother duck/Quack|kitten/mother cat/Meow|puppy/mother dog/Woof|chick/mother hen/Cheep|lamb/mother sheep/Baa|baby owl/mother owl/Hoo|piglet/mother pig/Oink
where = in the tall grass|under a bush|beside the path|behind an old log|at the edge of the [pond|road|field]
x/y = cow/goat|bee/frog|horse/goose|sheep/snail|pigeon/toad|donkey/rooster|turtle/crow
xx/yy = big/old|busy/gray|friendly/wise|fat/sleepy|slow/tall
den = [the barn|the far side of the pond|the old mill|the big haystack|the other side of the hill]

{begin} was [walking|taking a walk|skipping] [down the path|through the field|along the stream|home from the market] when {h.he} heard a [small|tiny|sad] sound. "{call}! {call}!" it went. [{h} stopped and listened.|{h} looked around.|Where did it come from?]

[There, {where}, sat|{where} {h.he} found] a [little|tiny|fluffy|shivering] {b}. It was all alone[ and very scared| and it was shaking|]. "{oh} Are you lost, little one?" asked {h}. The {b} [nodded|looked up with big, wet eyes|only cried, "{call}!"]. ["Don't be afraid. I will help you find your mother," said {h}.|"Come with me," said {h}. "We will find your mother together."] {h.He} [picked up the {b} and held it close|wrapped the {b} in {h.his} [scarf|warm coat]|gave the {b} a bit of bread and let it ride on {h.his} shoulder].

First, they met a {xx} {x}. "Have you seen a {ma}?" asked {h}. ["No," said the {x}. "I have been [sleeping|eating|busy] all day."|The {x} shook its head. "I have seen only [clouds|grass|flies] today," it said.|"Not today," said the {x}. "But keep looking!"] Next, they met a {yy} {y}. ["Oh, yes!" said the {y}. "I saw a {ma} near {den}. She was looking for her baby."|"A {ma} was here this morning," said the {y}. "She was very worried. She went to {den}."|"I heard someone calling near {den}," said the {y}.]

{h} {quick} to {den} as fast as {h.he} could. "{call}!" cried the {b}. "{call}!" came the answer. [It was the {ma}!|Out came the {ma}!] The {b} [jumped down and ran to its mother|ran into its mother's arms|ran to her as fast as its little legs could go]. [They cuddled {meanwhile}.|The mother kissed it again and again.|How happy they were!]

[{h} waved goodbye and walked home.|"Thank you, {h}," said the {ma}. "You are very kind."|"Goodbye, little {b}!" said {h}.] [{h.His} heart felt warm all the way.|{h.He} was {glad} that {h.he} had [helped|stopped to listen].|It feels good to help someone small.] [{since} the {b} came to visit {h} [every week|almost every day].|{sleep}.|]

== the kite in the tree
t/do = kite/flying|ball/throwing|toy plane/flying|balloon/playing with|paper bird/throwing
c = red|blue|green|yellow|orange|purple
tree = apple tree|oak tree|pine tree|pear tree|willow
helper/hn/how = a tall man with a ladder/the man/He climbed up, step by step,|a kind farmer with a long stick/the farmer/She reached up high|a black crow/the crow/It flew up|{e}/{e}/{e} brought a ladder, climbed up|a quick little monkey/the monkey/It ran up the tree|a gray cat/the cat/It climbed from branch to branch|a tall fireman/the fireman/He put up a long ladder|a big red bird/the bird/It flew up

{begin} was {do} a {c} {t} [C:in the park|A:in the meadow|on top of a hill] with {h.his} friend {f}. [The wind was strong.|The wind blew and blew.|They laughed and ran in the wind.] {then} [the wind carried the {t} away|a big gust of wind took the {t}], and it got stuck in [a tall|a very tall|the tallest] {tree}.

"{oh} My {t}!" cried {h}. [{h.He} jumped as high as {h.he} could, but the {t} was too high.|{h} tried to shake the tree, but the {t} did not move.|{f} threw a stick at it, but the stick got stuck, too!] [{f} stood on {h.his} shoulders, but still could not reach it.|Then they tried to climb, but the branches were too high.|They pulled and they pushed, but nothing helped.] ["What can we do?" asked {f}.|"It is too high for us," said {f}.|"What now?" asked {f}.] ["We can ask for help," said {h}.|"Let's ask someone," said {h}.]

[Soon|A little later|After a while], they saw {helper}. "[Please|Excuse me], can you help us?" asked {h}. "Our {t} is stuck in the tree." ["Of course!" said {hn}.|"I would be happy to help," said {hn}.|"That is easy!" said {hn}.] {how} and [gently|carefully|slowly] pulled the {t} free. Down it came, [right into {h.his} hands|as light as a leaf|twisting and turning].

"Hooray!" [shouted|cried] {h} and {f}. "{thank}!" To say thank you, they shared {h.his} [sandwich|cookies|basket of berries] with their new friend. [Then they all played together until the sun went down.|Then they found a wide, open place with no trees at all, and played all afternoon.] [{since} {h} always looked for trees before playing with the {t}.|{h} had learned that [it is good to ask for help|asking for help can be a clever thing to do].|It was a wonderful day.]

== the new friend
place = C:school|C:the playground|C:the park|A:the meadow|A:the forest|A:the pond
game = hide and seek|tag|catch|jump rope|pirates|follow the leader

[There was|Once upon a time, there was] a new {f.kind} [C:at {place}|A:near {place}]. {f.His} name was {f}. [{f} was very shy.|{f} did not know anyone.|{f} had come from far away.] {f.He} [sat alone under a tree|stood by [the fence|a big rock] and looked at {f.his} feet|watched the others from far away], [while all the others played {game}|and {f.he} did not say a word].

{h} saw {f} [sitting there|all alone]. {h.He} was [a kind|a cheerful|a friendly] {h.kind}, and {h.he} [remembered how it felt to be new|did not like to see anyone sad|thought that {f} looked lonely]. So {h} walked [over|up to {f}] and said, "[Hello!|Hi!] My name is {h}. [Do you want to play with us?|Would you like to play {game}?|Can I sit with you?]" {f} [looked up|blushed|was surprised]. "[I don't know how to play|I am not very good at games|What if the others don't like me?]," [{f.he} whispered|said {f} in a small voice].

["That's all right," said {h}. "I will show you."|"Don't worry," said {h}. "I will stay with you."|"I was new here once, too," said {h}. "Come with me!"] {h.He} [held out {h.his} hand|shared {h.his} [apple|cookie|berries] with {f}|took {f} by the hand]. [Slowly, {f} smiled.|{f} smiled a tiny smile.|{f} took a deep breath and nodded.] [At first, {f} was very quiet. But soon {f.he} was laughing louder than anyone.|They played {game}, and it turned out that {f} was [very fast|very good at it|very clever].|They ran and jumped and laughed [all afternoon|until they could not run anymore].]

When it was time to go home, {f} said, "{thank}, {h}. [Today was the best day.|I was so scared this morning, and now I am happy.|Will you play with me tomorrow?]" ["See you tomorrow!" said {h}.|"We are friends now," said {h}.|"Friends help each other," said {h}.] [And they were best friends from that day on.|{since} {f} was never alone again.|And the next time someone new came along, it was {f} who said hello first.|A kind word can be the start of a big friendship.]

== sharing
t/of = bag of candy/candy|big box of cookies/cookies|basket of strawberries/strawberries|bowl of cherries/cherries|bag of nuts/nuts|plate of little cakes/cakes|basket of ripe plums/plums

{begin} got a {t} from {e}. [They smelled so good!|They were sweet and tasty.|{h} could not wait to eat them.] "Remember to share," said {e}. But {h} did not want to share. [{h.He} hid behind a [tree|wall|big rock] and began to eat.|"They are all mine," {h.he} thought, and {h.he} hid them [behind {h.his} back|under {h.his} hat].]

[Soon|Just then], {f} came by. {f} looked [hungry|tired|a little sad]. ["What do you have there?" asked {f}.|"Something smells good!" said {f}.|"What are you doing back there?" asked {f}.] "[Nothing|Nothing at all]," said {h}. [{f} walked away with {f.his} head down.|{f} sighed and went away.|{f} said nothing more and sat down alone on the grass.] {h} ate [one|two more|a few more], but now the {of} did not taste so good. [{h.His} tummy felt funny, and {h.his} heart felt heavy.|It was no fun to eat all alone.|{h.He} could not stop thinking of {f}.]

[{h} made up {h.his} mind.|{h} knew what to do.|"This is not right," {h} said to {h.himself}.] {h.He} {quick} after {f}. "Wait!" {h.he} called. "I am sorry, {f}. I did not tell the truth. [I have lots of {of}.|Would you like some of my {of}?] [Let's eat them together.|Half of them are for you.]" {f} [smiled from ear to ear|was so surprised that {f.he} laughed|clapped {f.his} hands]. ["{thank}!" {f.he} said.|"You are a good friend," {f.he} said.]

They sat [side by side|in the warm sun|under a big tree] and ate [until nothing was left|every last one]. [{f} told a funny story, and {h} laughed so hard that {h.he} fell over.|Then {f} shared something, too: a [shiny marble|cool drink|funny song].|The {of} had never tasted so good.] [When {e} heard about it, {e} {warmly}.|{h} learned that everything tastes better when you share.|"Sharing is more fun than hiding," said {h}.|{since} {h} shared [everything|all {h.his} treats] with {f}.]

== baking
cake = apple pie|chocolate cake|carrot cake|honey cake|lemon cake|berry pie|plum cake|pumpkin pie
need/who = eggs/the farmer|milk/the farmer|sugar/the kind old neighbor|flour/the miller|butter/the old woman next door|honey/the beekeeper
for = {e}'s birthday|a party|the village fair|a picnic|{f}, who was sick in bed

{begin} [wanted to bake|decided to bake] a {cake} for {for}. {h.He} put on [an apron|a white apron|a funny tall hat] and [took out a big bowl|washed {h.his} hands]. [But when {h.he} looked in the kitchen, there was no {need}!|But {h.he} could not find any {need}.] "I cannot bake a {cake} without {need}," said {h}.

So {h} went to ask {who}. ["Please, may I have some {need}?" {h.he} said. "I want to bake a {cake}."|"I want to bake a {cake}," {h.he} said, "but I have no {need}."] ["Yes, you may," said {who}, "but first help me sweep the yard." So {h} swept until the yard was clean.|"Of course," said {who}, "if you sing me a song." So {h} sang the [silliest|best|longest] song {h.he} knew.|"Here you are," said {who}. "But save me a piece!" {h} promised to do so.] [Then {h} {quick} home with the {need}.|Soon {h} was back in the kitchen with the {need}.]

{h} [mixed and stirred and mixed again|stirred and stirred until {h.his} arms were tired]. [There was flour on the floor, flour on the table, and even flour on {h.his} nose.|A little of it landed on {h.his} nose.|{h.He} licked the spoon, just to be sure that it was sweet.] [{e} put the {cake} in the oven, because the oven was very hot.] [Soon|Before long], the whole house smelled [wonderful|sweet and warm|of {cake}].

[The {cake} was a little crooked, but it was delicious.|The {cake} was golden and warm.|The {cake} came out a bit flat, but nobody cared.] [Everyone had a piece, and then another.|They ate until there were only crumbs.|Even {who} came by for a piece.] "[This is the best {cake} I have ever had|What a wonderful {cake}]!" said {e}. [{h} was {proud}.|{h} smiled and took one more bite.|{h} blushed and laughed.] [{h.He} was already thinking about what to bake next.|It was a sweet end to a sweet day.|Good things take a little work, and a little help.]

== the seed
seed/grown/part = tiny black seed/a giant sunflower/The flower turned its golden face to the sun|flat white seed/a huge pumpkin/It was as round as the moon|brown bean/a tall green bean plant/It climbed all the way up to the window|small round seed/a beautiful red rose/It smelled sweeter than honey|apple seed/a little apple tree/It had soft green leaves

{begin} [found a {seed} [on the path|in an old jar|in {h.his} pocket]|got a {seed} from [an old man|a kind gardener|{f}]]. "What will it be?" {h.he} [asked|wondered]. ["Plant it and see," said {e}.|{e} smiled. "If you take care of it, you will find out."] So {h} dug a little hole [in the garden|by the fence|behind the house], put the seed inside, and covered it with [soft|dark|warm] earth.

[The next morning, {h.he} ran outside to look.|Every morning, {h} ran outside to look.] But there was nothing to see. ["Why doesn't it grow?" {h} asked.|"Maybe it is asleep," said {h}.|"Hurry up, little seed!" said {h}.] "[Be patient|Give it time]," said {e}. "[Good things grow slowly|A seed needs water, sun, and time]." So {h} [watered it every day|gave it water every morning] and [sang to it|told it stories|pulled out the weeds]. [The rain fell, and the sun shone.|Days went by, and then weeks.] {f} [laughed and said, "You are watering dirt!" But {h} did not give up.|said, "I think nothing will come." But {h} kept on.|came to help carry the water.]

Then one morning, {h} saw [something green|a tiny green leaf|a little green tip] [peeking|pushing] out of the earth. "It's growing! It's growing!" [shouted|cried] {h}. [It grew and grew.|Every day it grew a little more.|It grew as tall as {h.his} knee, and then as tall as {h.his} nose.] By the end of [summer|the season], it had become {grown}. {part}.

[Everyone came to look at it.|{f} came to see it and could not believe it.|Even the bees came to say hello.] "[You did it|You did not give up]," said {e}. {h} was {proud}. [{h.He} saved a few new seeds in a little box, for next year.|{h.He} gave a new seed to {f}, and said, "Be patient!"|Now {h.he} knew that good things take time.|{sleep}.]

== afraid of the dark
noise/was = scratch, scratch/a branch, moving in the wind and touching the window|tap, tap, tap/the rain on the roof|hoo, hoo/an old owl, sitting in the tree outside|thump, thump/the cat, jumping from the shelf|squeak, squeak/a little mouse with a piece of cheese|drip, drip/water, falling slowly into a bucket|rattle, rattle/the wind, playing with the old door

{open} But there was one thing that {h} did not like at all: the dark. [When the sun went down, {h.he} pulled the blanket over {h.his} head.|Every night, {h.he} asked for one more story, so that the light could stay on.|In the dark, every shadow looked like a monster.]

One night, {h} [woke up|could not sleep]. {h.He} heard a strange noise. "{noise}," it went. [{h.His} heart began to beat fast.|{h} held {h.his} breath.|"Who is there?" whispered {h}. Nobody answered.] "{noise}," it went again. [{h} called for {e}.|{h} wanted to hide, but {h.he} wanted to know what it was, too.|{h} hugged {h.his} pillow tight.] [{e} came with a [candle|lantern|small lamp]. "Let's look together," said {e}.|{e} sat down on the bed. "[Sometimes|Often] things are only scary until we look at them," said {e}.]

[Hand in hand, they|Together, they] went to see. [Step by step, they came closer.|The floor was cold, and the house was very quiet.|{h.His} legs were shaking, but {h.he} did not turn back.] And what did they find? It was only {was}! [{h} began to laugh.|{h} laughed so hard that {h.he} had to sit down.|"Is that all?" said {h}, and {h.he} laughed.] "[So that was the monster|And I thought it was a monster]!" {h.he} said.

Then {e} [opened the curtain|opened the window|took {h.him} outside for a moment]. [The sky was full of stars.|The moon was big and round.|A hundred stars were shining.] "[You can only see them in the dark|The dark brings out the stars]," said {e}. {h} looked {meanwhile}. ["The dark is pretty," {h.he} said.|"I didn't know that the dark could be so beautiful," {h.he} said.] [{since} {h} was not afraid anymore.|{since} {h} was a little less afraid every night.|Then {h.he} went back to bed, and slept without a light for the first time.|{h.He} went back to bed and listened to the noise. Now it sounded like a lullaby.]

== the storm
hide = in a hollow tree|under a wooden bridge|in a small cave|in an old barn|under the roof of an empty hut
spend = told funny stories|sang all the songs they knew|played a guessing game|counted the seconds between the lightning and the thunder

{pals} {day}, they [walked far from home to pick berries|went for a long walk|were looking for mushrooms in the woods|were playing by the river]. [They did not see the dark clouds in the sky.|The sky grew darker and darker, but they did not look up.|Slowly, big gray clouds covered the sun.] [{then} it began to rain.|A big drop fell on {h.his} nose. Then it began to pour.] Boom went the thunder!

"[I am scared|I don't like thunder]," said {f}[, and {f.he} began to shake|]. {h} was [a little scared, too|scared, too], but {h.he} [did not show it|wanted to be brave for {h.his} friend]. "Come on!" said {h}. ["I know a place where it is dry."|"We must find a dry place."] They {quick} through the rain and hid {hide}. [It was dark inside, but it was dry.|It was small, but there was room for two.] There they sat, [close together|side by side|wet from head to toe], and listened to the storm.

["Let's think of something nice," said {h}.|"Thunder is only the clouds bumping into each other," said {h}.|"The storm will pass. Storms always do," said {h}.] So they {spend}. [Each time the thunder boomed, they shouted "Boom!" back at it.|Soon they did not hear the thunder at all.|After a while, {f} even began to laugh.] [Little by little|Slowly], the rain grew softer, until it stopped.

When they came out, [the sun was shining again|everything was fresh and green|the air smelled of wet grass]. "Look!" cried {f}. [Over the hills was a big rainbow.|A rainbow went all the way across the sky.] [They ran home through the puddles, splashing all the way.|They walked home hand in hand, and each had the other's muddy shoes to laugh about.|At home, {e} was waiting with [dry clothes and hot soup|warm towels and hot milk].] ["I wasn't scared at all," said {f}, and they both laughed.|"You were very brave," {f} told {h}. "So were you," said {h}.|{since} they were not afraid of storms, as long as they were together.]

== learning
do/at/fail = swim/at the pond/sank like a stone|skate/on the frozen lake/fell on the hard ice|whistle/on the porch/made only a funny hissing sound|juggle/in the yard/dropped all three balls on {h.his} toes|ride a bike/on the quiet road/fell into a bush|walk on stilts/in the yard/fell into the hay|row a boat/on the lake/went around and around in circles|jump rope/in the yard/got all tangled up|do a cartwheel/on the grass/landed on {h.his} back

{open} {h} wanted to learn to {do}. [All of {h.his} friends could do it already.|{f} could do it so well, and it looked like so much fun.|{h.He} had dreamed of it for a long time.] {day}, {h.he} [went to try|tried for the first time] {at}. But {h.he} {fail}. "Ouch!" said {h}.

{h} tried again. [Again, {h.he} {fail}.|It was no better the second time.|It did not work.] ["I will never learn to {do}," {h} said sadly.|"It is too hard," {h} said, and {h.he} [kicked a stone|sat down and sighed].|{h} wanted to give up and go home.] [Then {f} came along. "[I fell down a hundred times when I learned|I could not do it at first, either]," said {f}. "[The trick is to try one more time|You must only get up one more time than you fall]."|{e} sat down beside {h.him}. "[Nobody can do it the first time|Everyone falls at first]," said {e}. "[Try a little every day|Just try once more]."]

So {h} [tried again the next day, and the next|practiced every day|went back every afternoon]. [Some days were good, and some days were bad.|Each day it went a little better.|{h.He} got bumps and bruises, but {h.he} also got better.] And then, one {fine} [morning|day], it [happened|worked]! [{h} did not fall.|All at once, it was easy.|For the first time, everything went right.] "[Look at me|Look, look]!" {h.he} [shouted|cried]. "I can {do}!"

[{f} cheered and clapped.|{e} clapped and clapped.|Everyone cheered.] {h} was {proud}. [{since} {h.he} wanted to {do} [all day long|every day].|And the next week, when a smaller child wanted to {do}, it was {h} who said, "Just try one more time."|{h.He} had learned that you only fail when you stop trying.|{sleep}. In {h.his} dreams, {h.he} did it again and again.]

== the broken thing
v/is = vase/blue|cup/favorite|plate/painted|clock/old|lamp/pretty|bowl/best|teapot/white
why = playing ball in the house|dancing around the table|chasing a fly|running through the room|spinning in circles

{begin} was {why}, [even though {h.he} knew {h.he} should not|and {h.he} was not looking]. Crash! {e}'s {is} {v} fell [to the floor|down] and broke [into many pieces|in two]. [{h} stood very still.|{h} could not believe it.|"{oh}" whispered {h}.] [{h.His} tummy hurt.|{h.His} face turned hot.]

[What should {h.he} do?|"{e} will be so angry," thought {h}.] [Quickly, {h} swept up the pieces and hid them [under the rug|behind the curtain|in a box].|{h} hid the pieces [under the bed|behind the sofa] and went outside.] [But outside, {h.he} could not play.|But all day long, {h.he} could think of nothing else.] [{f} asked, "What is the matter?" {h} told {f.him} everything. "[You should tell {e}|Telling the truth is hard, but hiding is harder]," said {f}.|The sun was shining, but {h} did not feel sunny at all.|At dinner, {h} could not eat a bite.]

At last, {h} went to {e}. "I have to tell you something," {h.he} said[ in a very small voice|, and a tear rolled down {h.his} cheek|]. "I broke your {v}. [I was {why}.|I did not mean to.] And then I hid it. I am very sorry." [{e} was quiet for a moment.|{e} put down the book and looked at {h.him}.] Then {e} {warmly}. "[I am sad about the {v}|It was only a {v}]," said {e}, "but I am [proud|glad] that you told me the truth."

[Together, they glued the pieces back together.|They took some glue and put the {v} together again, piece by piece.|{h} helped to sweep the floor, and then they made a new one out of clay.] [It did not look the same, but {e} said that now it was even more special.|It was a bit crooked, but it still looked nice.] [{h} felt as light as a feather.|{h} felt much better.] [{since} {h} played outside, and always told the truth.|Telling the truth was hard, but it made {h.his} heart feel light.|{sleep}.|{since} {h} was more careful.]

== the birthday gift
make = a [necklace|wind chime] of [shiny|tiny white] shells [from the shore|on a thread]|a [crown|wreath] of [yellow|wild|blue] flowers and soft leaves|a picture of the two of them under a [big sun|rainbow]|a little boat out of a walnut shell and a [leaf|feather]|a warm scarf out of old [red|blue] wool|a small basket out of long green grass|a birdhouse out of old pieces of wood|a [bear|rabbit] out of two old socks
who = {f}|{f}|{e}

[{open} Tomorrow was {who}'s birthday|It was almost {who}'s birthday, and {h} wanted to give {who} something special|The next day was {who}'s birthday, and {h} did not have a gift]. {h} [looked in {h.his} pocket. There was only one coin.|counted {h.his} coins. One, two, three. It was not enough.|had no money at all.] [In the shop window, {h.he} saw a beautiful [clock|toy|hat], but it cost too much.|At the market, everything cost too much.] "What can I give?" {h.he} [wondered|asked].

{h} [walked|wandered] [through the garden|along the river|home], thinking and thinking. [A [bird|robin] was building a nest with bits of grass.|A spider was making a web, thread by thread.] "[It does not buy its home. It makes it|It makes something beautiful out of nothing]," thought {h}. And then {h.he} had an idea. "I will make a gift myself!" {h.he} said.

{h.He} [worked all evening|worked until the stars came out|sat down at the table and worked for hours]. {h.He} made {make}. [Twice it fell apart, and twice {h} started again.|It was not easy, but {h.he} did not stop.|{h.His} fingers were tired, but {h.his} heart was happy.] [When it was done, {h.he} put it in a small box with a ribbon.|At last, it was finished.]

The next day, there were many big gifts on the table. [{h}'s gift was the smallest.|{h} felt a little shy.|{h} put {h.his} small gift at the very end.] When {who} [opened it|saw it], [the room became quiet|everyone leaned in to see]. "Did you make this yourself?" asked {who}. {h} nodded. "[It is the best gift of all|I will keep it forever|I have never had such a lovely gift]," said {who}[, and gave {h.him} a big hug|]. [{h} was so {glad}.|{h}'s smile was as big as the moon.] [Then there was cake for everyone.|The best gifts come from the heart.|And that day, {h} learned that love does not cost a single coin.]

== the magic thing
m/sign = stone/It was warm in {h.his} hand|shell/It hummed a soft tune|key/It shone like the moon|coin/It glowed in the dark|feather/It was as light as a breath|bottle/A tiny voice came out of it|lamp/It gave a soft blue light
w1/got = for a mountain of candy/Candy fell from the sky. {h} ate and ate until {h.his} tummy hurt|for a bed made of gold/The bed was very shiny, but it was hard and cold|to be as tall as a house/{h} grew and grew, but now {h.he} could not go through the door|to fly like a bird/{h} flew above the trees, but it was windy and lonely up there|for a hundred new toys/There were so many toys that {h} could not find {h.his} own bed
need/fix = lost {f.his} way home/Take {f} safely home|hurt {f.his} leg/Make the leg well again|not eaten all day/Give {f} a warm, tasty meal|lost {f.his} little dog/Bring the little dog back
where = on the beach|in the grass|at the bottom of the stream|under an old tree|in a dusty box

{begin} found a {m} {where}. {sign}. ["How strange," said {h}.|{h} rubbed it with {h.his} sleeve.|{h} looked at it from all sides.] {then} [the {m} spoke|it began to speak]. "[I am a magic {m}|I am old and full of magic]," it said. "You may have two wishes. [Use them well.|Think before you wish!]"

{h} did not have to think. "I wish {w1}!" {h.he} cried. [Poof!|Whoosh!] {got}. ["This is not what I wanted," said {h}.|"Oh," said {h}. "I thought it would be more fun."] [{h.He} wished that {h.he} had thought about it longer.|By the evening, the magic had faded, and {h} was glad.|Luckily, the magic only lasted until sunset.] [Now there was only one wish left.|"One more wish," said the {m}.]

[The next day|On the way home], {h} met {f}. {f} was sitting [by the road|on a rock|under a tree], [crying softly|with tears in {f.his} eyes]. "What happened?" asked {h}. {f} had {need}. [{h} looked at the {m} in {h.his} hand.|{h} thought about {h.his} last wish.] [{h.He} could wish for anything in the world.|There were so many things that {h.he} still wanted.] But {h.he} looked at {f}, and {h.he} knew what to do. "{fix}," {h.he} [whispered|said]. "That is my wish."

[The {m} shone brightly, and the wish came true.|There was a flash of light, and the wish came true.] {f} [laughed and cried at the same time|could hardly believe it|hugged {h}]. ["How can I thank you?" asked {f}.|"{thank}!" said {f}.] "[That was a good wish|You chose well]," said the {m}, and [it became an ordinary {m} again|its light went out]. {h} did not mind. [{h.He} had a new friend, and that was better than magic.|{h.His} heart was warm and light.|{h.He} put it on the shelf next to {h.his} bed, to remember.]

== the hurt bird
bird = robin|sparrow|blackbird|swallow|bluebird|dove
hurt = wing|wing|leg

{begin} found a [small|little|young] {bird} [on the ground|under a bush|on the cold stones|by the gate]. Its {hurt} was hurt, and it could not fly. [{h} knelt down.|{h} came closer, very slowly.] "[Don't be afraid|I will not hurt you], little bird," {h.he} said. [The {bird} looked at {h.him} with one black eye.|The {bird} was shaking.]

{h} [carried it home in {h.his} hat|took it home in both hands]. {e} helped {h.him} [make a bed in a small box, with soft grass and cotton|put a tiny bandage on the {hurt}]. [Every day|Every morning], {h} gave the {bird} [seeds and water|crumbs and a little water|berries and seeds]. [At night, {h.he} put the box next to {h.his} bed.|{h.He} talked to it, and sometimes it answered with a tiny chirp.|{f} came to visit, and they sat by the box together.] [Slowly, the {hurt} got better.|Little by little, the {bird} grew strong.|Each day, the {bird} hopped a little more.]

One morning, the {bird} [sat on the window and looked at the sky|flapped its wings and flew around the room]. [{h} knew what that meant.|"It wants to go," said {e} softly.] {h} [felt sad, because {h.he} loved the {bird}|did not want to say goodbye]. "Can't it stay?" {h.he} asked. "[A bird needs the sky|If you love it, you must let it go]," said {e}. {h} [wiped away a tear|took a deep breath] and opened the window. [The {bird} sang one short song, and then it flew up and away.|Up went the {bird}, over the roof and over the trees.]

[The box was empty now, and the house was quiet.|{h} looked out of the window every day.] [Weeks went by.|Autumn came, and then winter.] But [one morning in spring|one day], there was a [tap at the window|song outside {h.his} window]. It was the {bird}! [And it had brought three little ones along.|And next to it sat another bird.|It sang and sang, as if it wanted to say thank you.] "[You came back|You did not forget me]!" cried {h}. {h.He} was so {glad}. [And from then on, the {bird} came back every spring.|Now {h.he} knew that friends can fly away and still be friends.]

== the race (animal)
prize = a golden cup|a big basket of apples|a crown of flowers|a jar of honey

Every [summer|year], there was a big race [around the pond|through the forest|from the oak tree to the hill]. The winner got {prize}. {f.full} was the fastest of all. "[No one can beat me|I always win]," {f.he} said, and {f.he} [laughed at the others|stuck {f.his} nose in the air]. {h.full} was not very fast[, but {h.he} loved to run|]. ["You? In the race?" laughed {f}.|"You will be last," said {f}.] "[I will do my best|I only want to try]," said {h}.

["Ready, set, go!" cried the old owl.|The old owl blew a whistle, and off they went.] {f} shot away like an arrow. [Soon {f.he} was far ahead.|Soon nobody could see {f.him} anymore.] {h} ran [as fast as {h.he} could|slowly, step by step, and did not stop]. [But at the bridge, {f} looked back to laugh, and fell into the mud.|But {f} was so busy waving at everyone that {f.he} tripped over a root.|But {f} wanted to take a shortcut, and got stuck in a bush full of thorns.] "Help!" cried {f}. [One after another, the others ran past {f.him}. They did not want to lose.|The others just ran by.]

[Then {h} came along.|At last came {h}.] {h.He} could have run on[ and won|]. But {h.he} stopped. "[Give me your hand|Hold on]," said {h}. {h.He} pulled and pulled until {f} was free. [{f.His} foot was hurt, so {h} let {f.him} lean on {h.him}.|"Can you walk?" {h.he} asked. "A little," said {f}.] [Side by side|Together], they walked to the end of the race. They were the very last.

[But everyone cheered for {h} the loudest.|And yet everyone clapped and cheered.] ["The winner is the one who ran the fastest," said the old owl. "But the best of all is the one who stopped to help."|The winner came up to {h} and said, "You should share the prize with me."] {f} looked at the ground. "I am sorry that I laughed at you," {f.he} said. "[You are the real winner|You have the biggest heart of all]." [{h} only smiled. "Shall we run home together?" {h.he} asked.|{since} the two were friends, and they ran together every day.|And {f} never laughed at anyone again.]

== the snowman
name = Mr. Frost|Snowy|Button|Mr. Cold|Carrot|Mr. Puddle
hat = an old black hat|a red bucket|a blue cap|a flower pot

One [cold|white|quiet] winter morning, {h} looked out of the window. [Everything was white!|Snow, snow, everywhere!] {h.He} put on [boots, a hat and a scarf|{h.his} warmest coat] and {quick} outside[ to meet {f}|, where {f} was already waiting]. "Let's build a snowman!" said {h}. ["The biggest one ever!" said {f}.|"Yes, let's!" said {f}.] They rolled one big ball, one middle ball, and one small ball. [They used stones for the eyes and a carrot for the nose.|They found two sticks for arms.|{e} gave them a carrot for the nose.] On top they put {hat}. "We will call him {name}," said {f}.

[All day long, they played around {name}.|They danced around {name} until their noses were red.] In the evening, [the wind grew very cold|it became very cold]. {h} looked out at the snowman, all alone in the dark. "[He must be so cold|Poor {name}]," said {h}. {h.He} ran outside and put {h.his} own scarf around the snowman's neck. "[There, now you are warm|Good night, {name}]," {h.he} said.

[In the night, {h} had a dream.|That night, {h} woke up and looked outside.] [The snowman tipped his hat and smiled at {h.him}.|{name} was dancing in the moonlight with a white rabbit.|{name} winked at {h.him} with one stone eye.] [In the morning, {h} was not sure if it had been a dream. But there were round footprints all over the snow!|"Thank you for the scarf," said {name}. "Nobody ever gave me anything before."]

The snow stayed for [two weeks|many days]. Then the sun grew warm, and {name} grew smaller and smaller, until [only a puddle, a carrot, and a scarf were left|he was gone]. [{h} was sad.|{h} felt a tear on {h.his} cheek.] "[Don't be sad|Don't cry]," said {e}. "[He only went back to the clouds. Next winter, he will fall down again as snow|The water will make the flowers grow]." [And where the snowman had stood, the first flower of spring came out of the ground.|"See you next winter, {name}," {h} said to the sky.|So {h} hung up {h.his} scarf and waited for the winter to come again.]

== lost in the forest
follow = a bright butterfly|a little white rabbit|a blue dragonfly|a trail of red berries|a strange, sweet song
guide/does = firefly/It lit up the path with its tiny light|white owl/It flew from tree to tree and waited each time|gentle deer/It walked slowly, so that {h} could keep up|red squirrel/It jumped from branch to branch ahead of {h.him}|little stream/"Follow me," it seemed to say, and it led the way down the hill

{begin} went [into the forest|to the forest] to [pick mushrooms|gather sticks|look for blueberries]. "Stay on the path," said {e}. [{h} promised.|"I will," said {h}.] But then {h.he} saw {follow}. It was so beautiful that {h.he} forgot [all about the path|what {e} had said]. {h.He} followed it, deeper and deeper into the trees.

When {h} [stopped|looked up at last], everything [was quiet|looked strange]. [There was no path. There were only trees, and more trees.|All the trees looked the same.] "[Where am I?|Hello? Is anyone there?]" {h.he} called. [Only the wind answered.|Nobody answered.] The sun was going down. [{h} sat on a log and began to cry.|{h} felt very small.|{h} walked this way and that way, but {h.he} only came back to the same old log.]

[Then {h.he} remembered what {e} always said. "When you are lost, stay calm and look around." {h} wiped {h.his} eyes and looked.|"Crying will not take me home," {h} said at last, and {h.he} wiped {h.his} eyes.|{then} {h.he} heard a sound.] [There, between the trees, was|Not far away was] a {guide}. {does}. [{h} followed, over roots and under branches.|{h} walked on and on, and {h.he} was not so afraid anymore.]

And [there|at last], behind the last trees, {h.he} saw [a light in a window|the roof of {h.his} own house]. It was home! {e} [was standing at the door|came running] with a lantern. "[I was so worried!|Where have you been?]" cried {e}, and hugged {h.him} tight. "I am sorry," said {h}. "[I left the path|I should have listened]." [There was hot soup for dinner, and it was the best soup of {h.his} life.|Then {h} turned around to say thank you, but the forest was dark and still.] [{since} {h} stayed on the path, even when something pretty flew by.|{sleep}. It was so good to be home.|{since} {h.he} always left a little bread at the edge of the forest, to say thank you.]

== the giant vegetable
v = turnip|carrot|pumpkin|cabbage|beet|potato
small = a tiny mouse|a little ant|a ladybug|a small snail|a baby bird

[In the spring|Once upon a time], {e} planted a {v}. The sun shone and the rain fell, and the {v} grew and grew. [It became as big as a cart.|It became bigger than the door.|By autumn, it was the biggest {v} anyone had ever seen.] "[It is time to pull it out|Now we can make soup]," said {e}. {e} pulled and pulled, but the {v} did not move.

"[Let me help|I will help you]!" said {h}. So {h} pulled {e}, and {e} pulled the {v}. [They pulled and pulled|Heave, ho! They pulled with all their strength], but the {v} [did not move|would not come out]. {h} called {f}. {f} pulled {h}, {h} pulled {e}, and {e} pulled the {v}. [Still, it did not move.|It moved a tiny bit, and then it stopped.] [They called the dog, and the dog called the cat.|They called the goat, and the goat called the goose.|The baker came to help, and so did the farmer.] [They all pulled until their faces were red.|They all pulled in one long line.] But the {v} stayed in the ground.

"[It is no use|We will never get it out]," [said {f}|sighed {e}]. Then {small} came by. "May I help?" it asked. [Everyone laughed. "You? You are much too small!"|"You are so small," said {f}. "How could you help?"] But {h} said, "[Every bit of help counts|Let's try it. Nobody is too small to help]." So the little one held on to the end of the line. "One, two, three, pull!"

And [pop|plop]! Out came the {v}, and everyone fell down [in a big heap|on top of each other]. [They laughed and laughed.|How they laughed!] Then they cooked a big pot of {v} soup, and [there was enough for the whole village|everyone had three bowls]. "[I did it|See? I am strong]!" said the little one[ proudly|]. ["We all did it," said {h}, "together."|"Without you, it would still be in the ground," said {h}.|And {h} gave the first bowl to the smallest helper of all.]

== the soup
put/bring = carrots/cabbage|potatoes/onions|beans/mushrooms|corn/peas|pumpkin/garlic

It had been a [hard|long|cold] winter, and [in the village nobody had much to eat|everyone was hungry]. People closed their doors and kept what little they had. {h} [looked into the kitchen. There was only one handful of {put}|had nothing left but a few {put}]. "That is not enough for [a meal|a soup]," said {e}. But {h} had an idea.

{h} put a big pot in the middle of the [village|square], filled it with water, and lit a fire. ["What are you doing?" asked {f}.|{f} came by. "What are you cooking?" {f.he} asked.] "I am making the best soup in the world," said {h}. [{h.He} put in the {put} and stirred.|{h.He} dropped in the {put}.] "It is nearly perfect. It only needs some {bring}." "[I have some {bring} at home|We still have some {bring}]!" said {f}, and {f.he} {quick} to get it.

[The smell went down the street.|Soon the air smelled wonderful.] One by one, the doors opened. [An old woman brought a bit of salt.|An old man brought a pinch of pepper.] [The baker came with yesterday's bread.|The milkman came with some cream.] [A little boy brought one small onion. "It is all I have," he said. "It is just what we need," said {h}.|Two sisters brought a bunch of green herbs.] Everyone put something in the pot.

[When the soup was done, there was enough for all.|And when the soup was ready, everyone got a full bowl.] [They sat around the fire and talked and laughed, as they had not done for a long time.|Someone took out a fiddle, and they sang and danced until late.] "[It really is the best soup in the world|I have never had such a good soup]," said {e}. "What is the secret?" {h} smiled. "[Everyone gave a little|We all made it together]," {h.he} said. [And the village was never so lonely again.|{since} they cooked together every week.|That night, nobody went to bed hungry.]

== the fallen star
where = in the garden|on the roof|into the pond|behind the hill|in the tall grass

One [clear|quiet|summer|cold] night, {h} [could not sleep|was looking out of the window]. {then} {h.he} saw a star fall from the sky. It landed {where}. {h} [put on {h.his} shoes|took a lantern] and went to look. There lay a tiny star, no bigger than [an apple|a teacup]. Its light was [weak|soft and pale]. "[I fell down|I leaned over too far, and I fell]," said the star. "I want to go home."

"Don't cry," said {h}. "I will help you." But how do you bring a star back to the sky? {h} [climbed the tallest tree and held up the star as high as {h.he} could|threw the star up as high as {h.he} could]. It was not high enough. [Then {h.he} tied it to a kite, but the wind was too weak.|Then {h.he} asked an owl to carry it, but it was too heavy for the owl.|Then {h.he} asked the moon, but the moon was too far away to hear.] The star's light grew weaker. ["I am so tired," it whispered.|"Maybe I will never shine again," it said.]

[{h} held the star close to {h.his} heart to keep it warm.|{h} wrapped it in {h.his} scarf.] [{h.He} did not know what else to do, so {h.he} sang it a song.|"I will stay with you," {h.he} said, and {h.he} began to sing the song that {e} always sang at bedtime.] And as {h.he} sang, the star began to glow. [It grew brighter and brighter.|It grew warm in {h.his} hands.] "[Your song makes me light|I can feel it! Sing on]!" said the star. {h} sang [louder|on and on], and slowly, slowly, the star [floated|rose] up, over the [roof|trees], and back into the sky.

[The next night, {h} looked up.|{h} waved until {h.his} arm was tired.] One star was winking at {h.him}. ["Good night, little star," {h.he} said.|{h} winked back.] [{since} whenever {h} felt alone, {h.he} looked up and knew that {h.he} had a friend.|And every night before bed, {h.he} sang the song once more, just for the star.|{h} told {e} about it in the morning. {e} only smiled, and looked at the stardust on {h.his} sleeves.]

== the dragon
beast = dragon|giant|troll|big gray bear|monster
place = in a cave on the mountain|in the dark forest|behind the waterfall|in the old castle on the hill
why/cure = had a thorn in its foot/pulled out the thorn|had a terrible toothache/pulled out the bad tooth|had a cold/gave it hot tea with honey|had a fish bone stuck in its throat/pulled out the bone|had a splinter in its paw/pulled out the splinter

Near {h}'s [village|home], {place}, there lived a {beast}. [Every night it roared so loudly that the windows shook.|Every night, everyone could hear it roar.] [Everyone was afraid of it.|Nobody dared to go there.] "[It must be very mean|It wants to eat us all]," they said. But {h} was [not so sure|curious]. "[Has anyone ever talked to it|Is it just sad, maybe]?" {h.he} [asked|wondered].

{day}, {h} packed some [bread and cheese|apple pie|honey cake] and went to see for {h.himself}. ["Don't go!" cried {f}.|{f} wanted to come along, but {f.he} was too scared.] {h.His} knees were shaking, but {h.he} walked on. [There sat the {beast}, as big as a house.|The {beast} was bigger than {h.he} had thought.] "[WHO IS THERE?|Who dares to come here?]" it [roared|growled]. "[It is only me, {h}|My name is {h}]," said {h}. "Why do you roar every night?"

The {beast} [looked surprised|stopped roaring]. [Nobody had ever asked before.|"Nobody has ever asked me that," it said.] A big tear rolled down its nose. It {why}. ["It hurts so much that I cannot sleep," it said.|"That is why I roar," it said.|"I do not want to scare anyone," it said.] "[Oh, you poor thing|Let me help you]," said {h}. {h.He} [was very careful|was gentle], and {cure}. ["Ahhh," said the {beast}. "That is much better."|The {beast} smiled for the first time in a hundred years.] Then they shared the food.

[The next morning, the two of them walked into the village together.|A few days later, {h} brought the {beast} home for tea.] At first, everyone [ran and hid|screamed]. "[Don't be afraid|It is my friend]," said {h}. [The {beast} had picked flowers for everyone.|The {beast} bowed and said good morning very politely.] [Soon, all the children were sliding down its back.|Soon, it was helping to carry wood and to fix roofs.] [And at night, it was quiet at last.|And nobody was ever afraid of the {beast} again.|{h} had found out that a loud voice can hide a soft heart.]

== the raft
helper/hn = an old turtle/the turtle|a family of ducks/the ducks|a big friendly fish/the fish|two otters/the otters|a tall heron/the heron
raft = raft out of old logs|little boat out of a barrel|raft out of branches|boat out of an old door

{pals} {day}, they built a {raft}. ["Let's sail to the sea!" said {f}.|"We are pirates!" said {h}.|"I will be the captain," said {h}. "And I will be the cook," said {f}.] They [pushed it into the river|put it on the water] and climbed on. It floated! [The water carried them past the [willows|fields] and the old mill.|They sailed past cows and sheep, and waved at them all.|The sun shone, and they sang as loudly as they could.]

But the river grew [faster and wider|wild and fast]. [They had forgotten to bring a paddle.|They tried to steer with a stick, but the stick broke.] "[I want to go back!|How do we stop?]" cried {f}. Bump! The boat hit a rock and [began to sink|got stuck in the middle of the river]. [Water came in from all sides.|The water was cold and deep.] "Hold on to me!" said {h}. [They held on to each other.|They called for help as loudly as they could.]

{helper} heard them. "[Climb on|Don't be afraid]," said {hn}. "[We will bring you to the shore|You are safe now]." [Carefully, the two friends climbed out of the boat.|{f} went first, and {h} came after.] A moment later, the boat [was gone|broke into pieces]. [Soon they felt the sand under their feet.|Before they knew it, they were sitting in the warm grass.] They were wet and cold, but they were safe. "{thank}," they said. "[You saved us!|What would we have done without you?]"

They walked home along the river. [It was a long way, and their shoes went squish, squish, squish.|The sun dried their clothes, and after a while they could laugh about it.] ["Next time, we will bring a paddle," said {h}. "[And some sandwiches|And a bigger boat]," said {f}.|"Next time, we will ask {e} to help us build the boat," said {h}. "[And we will bring some sandwiches|And to teach us how to steer]," said {f}.|"Next time, let's be pirates on dry land," said {f}.] [{h} laughed.|And they both laughed.] [In the evening, they told {e} all about it.|{sleep}, and dreamed of the sea.|It had been a real adventure.]

== the treasure map
hid = in an old book|in a bottle|under a loose board|behind a picture|in the pocket of an old coat
x/y = the big rock/the old bridge|the well/the hollow tree|the mill/the three pine trees|the broken fence/the cave|the red barn/the old stone wall
treasure/joy = old toys/They had belonged to {e}, many years ago|letters and pictures/They told the story of {e}, when {e} was small|silver bells/Each one had a different sound|marbles in every color/They shone like little planets|seeds in little bags/In summer they would become the prettiest garden in the world|books full of stories/There was one for every night of the year

{begin} found a map {hid}. It was [yellow and dusty|very old], and on it was a big red X. "[A treasure map|A treasure]!" cried {h}. {h.He} {quick} to show it to {f}. ["Let's find it!" said {f}.|{f}'s eyes grew wide. "When do we start?" {f.he} asked.] They packed [a shovel and two sandwiches|a lantern and some cookies] and set off.

First, the map led them to {x}. [There, an arrow was carved into the wood.|From there, they had to walk fifty steps. They counted each one.|{f} turned the map around, because {h} was holding it upside down.] Then it led them to {y}. [It was a long way, and the sun was hot.|They got lost once, and had to go back.|It was a little bit spooky there, so they held hands.] "[Are we nearly there?|I am tired]," said {f}. "[Just a little more|It must be here]," said {h}. ["Here is the X!" {h.he} cried.|Two crossed sticks lay on the ground. It was the X!]

They dug and dug. [The hole grew deeper, and the two grew dirtier.|They found a worm, a stone, and an old spoon.] Then the shovel went clonk! It was a [small|wooden|heavy] box. [They held their breath.|"You open it," said {h}. "No, you," said {f}. So they opened it together.] There was no gold inside. The box was full of {treasure}. {joy}.

["This is better than gold," said {h}.|"It is the best treasure ever," said {f}.|They forgot all about gold.] They [carried the box home|took everything home], and {e} [laughed with joy|could hardly believe it]. "[I thought it was lost|I made that map when I was little]!" said {e}. [All evening, they sat together and listened to stories of long ago.|They shared the treasure, half for {h} and half for {f}.|Then {h} and {f} drew a new map, and hid it for someone else to find.]

== the quarrel
t = swing|red wagon|big ball|kite|box of paints|sled|tree house|drum

{pals} But {day2}, they had a quarrel. Both of them wanted the {t}. "[It is my turn|I had it first]!" said {h}. "[No, it is mine|No, me first]!" said {f}. [They pulled and they pushed.|They shouted until their faces were red.] "[You are not my friend anymore|I will never play with you again]!" [cried {f}|shouted {h}]. {f} went home, and {h} went home, too.

[{h} played alone.|{h} had the {t} all to {h.himself}.] But [it was no fun|it was boring]. [There was nobody to laugh with.|There was nobody to talk to.|Every game needs two, {h.he} found out.] {h.He} looked [out of the window|at {f.his} house|down the path], but {f} did not come. [At home, {f} was sad, too.|{f} was sitting alone, too, and {f.he} was drawing sad faces in the sand.] "What is the matter?" asked {e}. {h} told {e} everything. "[Someone has to be the first to say sorry|It takes a strong heart to say sorry]," said {e}. "[Is a {t} worth more than a friend?|What do you miss more, the {t} or your friend?]"

{h} thought {meanwhile}. Then {h.he} [put on {h.his} shoes|jumped up] and {quick} out of the door. [Halfway there, {h.he} saw someone coming. It was {f}!|In the middle of the path, {h.he} bumped into someone. It was {f}!] "I am sorry," said {h}. And at the very same time, {f} said, "I am sorry." [They looked at each other and began to laugh.|For a moment it was quiet, and then they both laughed.]

["You can go first," said {h}. "No, you," said {f}.|"Let's take turns," said {f}. "You first."] [In the end, they found a way to play together.|So first it was {f}'s turn, and then it was {h}'s turn, and then they started again.] [It was much more fun that way.|They played until the stars came out.] [And the next time they both wanted the same thing, they only had to look at each other, and they laughed.|A friend is worth more than any {t}.|{since} they always took turns.]

== the big ears (animal)
odd/saved/how = very big ears/heard/{h.His} big ears could hear the softest sound|a very long nose/smelled/{h.His} long nose could smell anything|very big eyes/saw/{h.His} big eyes could see in the dark|a very small body/found/{h.He} was so small that {h.he} could go where nobody else could

{open} {h} had {odd}. [The other animals laughed at {h.him}.|Sometimes the others laughed and pointed.] "[Look at {h}|How funny you look]!" they said. [{h} tried to hide behind the others.|{h} wished to look like everyone else.|At night, {h.he} cried into {h.his} pillow.] "[Why am I so different?|I want to be like the others]," {h.he} said to {e}. "[One day, you will be glad|What makes you different makes you special]," said {e}. But {h} did not believe it.

{day}, {f}, the smallest of them all, [did not come home|was gone]. [Everyone ran through the forest and called {f.his} name.|They looked by the pond and on the hill, but {f} was not there.] The sky grew dark, [and it began to rain|and a thick fog came up]. [The others wanted to go home.|"We can't find {f.him} in the dark," said the others.] But {h} [did not give up|kept on looking]. {how}. [{then}|And so, after a while,] {h.he} {saved} something. It was {f}! {f.He} had fallen into a deep hole.

"[I am here|Don't be afraid], {f}!" called {h}. [{h} found a long branch and let it down.|{h} called the others, and together they made a rope out of vines.] {f} held on tight, and they pulled {f.him} out. ["You found me!" cried {f}, and {f.he} would not let go of {h}.|{f} was dirty and cold, but {f.he} was safe.|"I thought nobody would ever find me," said {f}.]

The other animals [were very quiet|looked at their feet]. "[We are sorry that we laughed at you|We were wrong]," they said. "[Without you, {f} would still be down there|You are a hero]." {h} [blushed|smiled shyly]. [{since} nobody laughed at {h} anymore, and {h} did not want to be like the others anymore.|On the way home, {h} looked at {h.himself} in a puddle, and for the first time {h.he} liked what {h.he} saw.|"You see?" said {e} that evening. And {h} nodded.]

== the berries
berry = blueberries|strawberries|raspberries|cherries|plums|blackberries
for = a pie|jam|a birthday cake

{e} wanted to make {for}, so {h} [and {f}|] took a basket and went to [pick|gather] {berry}. [The bushes|The branches] were full of them. [They were ripe and sweet.|They shone in the sun like little jewels.] "One for the basket, one for me," [said|sang] {h}. {h.He} ate one, and then another. "One for the basket, two for me. One for the basket, three for me." [Soon {h.his} mouth and fingers were all [red|purple].|{h.He} ate and ate.]

By noon, the basket was [still nearly empty|not even half full], but {h} was very full. {h.His} tummy went [grumble, grumble|gurgle, gurgle]. "Ow," said {h}[, and {h.he} lay down in the grass|]. [A snail came by. "You look green," it said.|A crow laughed from a tree. "Too many, too many!" it said.|A bee flew around {h.his} nose. "Too much is too much," it hummed.] [{h} could only groan.|"I only wanted one more," groaned {h}.] {h.He} walked home very slowly.

"[Where are the {berry}|Is that all]?" asked {e}. {h} looked at the [floor|basket]. "[They are in my tummy|I ate them]," {h.he} said. "I am sorry. [I could not stop.|I only thought of myself.]" {e} [tried not to laugh|shook a finger, but had to smile], and made {h.him} a cup of tea. [After a long nap, {h} felt better.|{h} went to bed early that day.]

The next [day|morning], {h} took the basket and went back. [This time, {h.he} ate only one.|This time, {h.he} sang a song, so that {h.his} mouth was too busy to eat.] {h.He} [worked until the basket was full to the top|did not stop until the basket was full]. [{e} was proud, and together they made {for}.|Then {e} and {h} made {for} together.] When it was ready, {h} took a [small|tiny] piece. "Don't you want more?" asked {e}. "[No, thank you|One is just right]," said {h}[, and {h.he} gave the rest to {f}|]. [And it was the sweetest thing {h.he} had ever eaten.|And they all laughed.|{h} had learned that enough is as good as a feast.]

== the song
do/verb = sing a song/sing|play the flute/play|tell a poem/speak|dance/dance|play the violin/play
fair = village fair|summer party|school show|spring festival|big feast

{open} More than anything, {h} loved to {do}. At home, {h.he} did it all day long, and {h.he} was very good at it. But when anyone looked, {h.his} knees began to shake[ and {h.his} face turned red|]. One day, {e} said, "[Soon it will be the {fair}|The {fair} is coming]. [Will you {do} for us?|Everyone would love to see you.]" ["Oh, no," said {h}. "I can't. Everyone will look at me."|{h} shook {h.his} head. "I am too shy," {h.he} whispered.]

{h} told {f} about it. "[I have an idea|I know what to do]," said {f}. "[First, do it only for me. Then do it for the two of us and the cat.|Don't look at all the people. Just look at me.]" So [every day after lunch|every evening], {h} practiced [in the barn, and the hens were the audience|in the garden, and the snails were the audience]. [The first day was hard, but the next day was easier.|Each day, {f} brought one more friend to watch.] [Little by little, {h} grew braver.|After a week, {h} hardly noticed them anymore.]

Then the big day came. [The whole village was there.|So many people had come!] {h} stepped out in front of everyone. {h.His} heart beat like a drum. [{h.He} opened {h.his} mouth, but nothing happened.|For a moment, {h.he} forgot everything.|{h.He} wanted to run away.] Then {h.he} saw {f} in the first row. {f} [smiled and waved|nodded at {h.him}]. [{h} took a deep breath, and began.|{h} closed {h.his} eyes, thought of the barn, and began.]

[It was beautiful.|{h.He} forgot everyone else, and it was wonderful.] When it was over, it was quiet for a moment, and then [everyone clapped and cheered|the clapping did not want to end]. [{e} had tears of joy in {e.his} eyes.|"More! More!" they shouted.] {h} [bowed and laughed|could not stop smiling]. "[Were you scared?|How was it?]" asked {f} afterwards. "[Yes|Very scared]," said {h}, "but [I did it anyway|you were there]." [And that is what being brave means.|The next year, {h} was the first to sign up.|{sleep}.]

== the picnic
bad/sound = rain/It began to rain, first softly, and then harder and harder|ants/A long line of ants marched up and carried away the food|wind/A strong wind came and blew everything into the bushes|geese/A flock of hungry geese came and ate with big appetite
food/drink = sandwiches and apples/lemonade|cheese and grapes/apple juice|cake and cherries/cold milk|pancakes and jam/sweet tea

{day}, {h} and {f} [planned|wanted to have] a picnic [by the lake|on the hill|under the big chestnut tree]. They packed {food}, and a [big|tall] bottle of {drink}. [{h} carried the basket, and {f} carried the blanket.|The basket was so heavy that they had to carry it together.] When they got there, [they put the blanket on the grass and sat down|everything was perfect]. "[What a lovely day|Nothing can go wrong today]," said {f}.

But then it happened. {sound}. "[Our picnic|Oh, no]!" cried {f}. [They grabbed what they could and ran.|They jumped up and waved their arms, but it was too late.] [In the end, only one apple and half a bottle of {drink} were left.|When it was over, there was almost nothing left.] {f} was [close to tears|sad]. "[Everything is spoiled|The whole day is spoiled]," {f.he} said.

{h} looked at the [basket|blanket], and then at {f}. "[The food is not the best part of a picnic|A picnic can be anywhere]," said {h}. "[The best part is that we are together|We only need the two of us]." [{h.He} had an idea.|{h.He} took {f} by the hand.] They went home to {h}, pushed the chairs aside, and put the blanket on the floor. [{e} gave them warm bread and butter.|{e} made hot chocolate for them.|In the cupboard they found a few old cookies.] [They put a flower pot in the middle, and called it the forest.|They hung paper birds from the lamp.]

They [ate and laughed and told stories|played cards and sang songs] until [it grew dark|the moon came up]. ["This is the best picnic we ever had," said {f}.|"Let's do this again," said {f}, "even when the sun is shining."] [{h} smiled. "And not one ant," {h.he} said.|And {h} thought so, too.|Sometimes a spoiled day can become the best day of all.]

== the lost glasses
g/on/be/it/was = glasses/on top of {e.his} head/are/they/were|hat/on {e.his} head/is/it/was|keys/in {e.his} own hand/are/they/were|slippers/on {e.his} feet/are/they/were|pencil/behind {e.his} ear/is/it/was|scarf/around {e.his} neck/is/it/was
place1/found1 = under the table/a button and a peanut|behind the clock/a sleeping spider|under the sofa/a sock and two marbles|in the bread box/only an old bun
place2/found2 = in the flower pot/a friendly worm|in the bathtub/a rubber duck|in the teapot/a cold tea bag|behind the books/a postcard from the sea

"Where {be} my {g}?" asked {e} one [morning|day|evening]. ["I cannot go out without my {g}!"|"I had my {g} a minute ago."|"I have looked all over the house."] {h} [jumped up|put down {h.his} toys]. "[Leave it to me|I will find out]," {h.he} said. "I am [a detective|good at finding things]." {h} was a {trait} {h.kind}[, and there was nothing {h.he} liked more than a good mystery| who loved a good mystery].

{h} took a big [magnifying glass|lamp] and got to work. First, {h.he} looked {place1}. {h.He} found {found1}, but no {g}. Then {h.he} looked {place2}. There was {found2}, but no {g}. ["Hmm," said {h}. "This is a hard one."|"Very strange," said {h}, and {h.he} scratched {h.his} chin.] [{f} came to help. "Maybe the cat took it," said {f}. But the cat only yawned.|{h.He} asked the cat, but the cat only said meow.|{h} even looked inside the piano.]

["A good detective asks questions," said {h}. "Where did you go today, {e}?"|"Let us start again from the beginning," said {h}. "What did you do this morning?"] "[First I made tea, and then I read the paper|I fed the hens, and then I sat down for a little nap]," said {e}. {h} looked at {e}. {h.He} looked again, and then {h.he} began to [giggle|smile]. "{e}," said {h}, "[I have solved the mystery|I know where {it} {be}]." "[Where|Well]?" asked {e}. {h} [pointed|laughed so hard that {h.he} could hardly speak]. {it} {was} {on}!

{e} [reached up, and turned as red as a tomato|began to laugh, too]. "[How silly of me|All this time]!" said {e}. [They laughed until their tummies hurt.|Even the cat seemed to laugh.] "[What do I owe you, detective|How can I thank the great detective]?" asked {e}. "[Two cookies, please|One story, please]," said {h}. [And that is what {h.he} got.|And so the case was closed.|{since} whenever something was lost, everyone called for Detective {h}.]

== the lullaby
who/sib = sister/she|brother/he
try = gave the baby a toy. The baby threw it away|made a funny face. The baby cried even louder|danced on one leg. The baby did not even look|put a hat on the cat. The baby was not amused, and neither was the cat|shook a rattle. That only made it worse

It was late, but {h}'s baby {who} did not want to sleep. "Waah, waah!" went the baby. [{e} walked up and down, up and down.|{e} was so tired that {e.he} yawned.|Nobody in the house could sleep.] {h} [climbed out of bed|came to the door in {h.his} pajamas]. "[Can I try?|Let me help!]" {h.he} said. "[Of course|Please do]," said {e}[, and sat down in the big chair|].

First, {h} {try}. ["This is not easy," said {h}.|"Babies are hard work," said {h}.] [Then {h.he} looked out of the window.|Then {h.he} had an idea.] [The moon was bright, and the night was quiet.|Outside, the moon shone on the quiet trees.] {h.He} sat down by the cradle and began to [hum|whisper]. "[Listen," said {h}. "|Shh," said {h}. "][The owls are going to bed now|The ducks are asleep on the pond]. [The trees are asleep, too|Even the wind has closed its eyes]. [The bears are asleep, and the mice, and the bees|The little fish are asleep in their beds of sand]."

[The baby stopped crying.|The crying grew softer.] It looked at {h} with big eyes. {h} went on. "[The clouds are rocking the stars|The moon is singing to the sea]. [And the shoes are asleep by the door|And the spoons are asleep in the drawer]. [Only you are still awake|And now it is your turn]." [Slowly, the baby's eyes closed.|The baby yawned a tiny yawn.] Soon it was quiet in the whole house.

"{e}," whispered {h}, "I did it!" But {e} did not answer. {e} had fallen asleep, too! [{h} laughed softly and put a blanket over {e}.|{h} put a blanket on {e}'s knees, and blew out the candle.] [Then {h.he} lay down next to the cradle, and a minute later {h.he} was sleeping, too.|Then {h.he} went to {h.his} own bed, and whispered the story once more, just for {h.himself}.|Only the moon saw it, and smiled.]

== the purse
thing/who/w/his = purse/an old woman/the old woman/her|gold ring/the baker's wife/the baker's wife/her|silver watch/the teacher/the teacher/his|bag of coins/a poor old man/the old man/his|fine silk scarf/a lady in a green dress/the lady/her
want = new bike|pair of red boots|big bag of candy|toy ship|fishing rod|paint box

{begin} found a {thing} [on the road|in front of the shop|on a bench]. [There was nobody around.|{h} looked left and right, but nobody was there.] "[I could buy a {want}|This is my lucky day]!" {h.he} thought. [For a long time, {h.he} had wanted a {want}.|{h.He} put it in {h.his} pocket and walked on.]

But the {thing} felt [heavy|strange] in {h.his} pocket. [What if someone was looking for it?|Somebody must be very sad now, {h.he} thought.] {h.He} met {f} and told {f.him} about it. ["You found it, so it is yours," said {f}. {h} was not so sure.|"Nobody will ever know," said {f}. "I will know," said {h}.|"What would you want, if it were yours?" asked {f}.] {h} [shook {h.his} head|thought {meanwhile}]. "[I have to give it back|It is not mine]," {h.he} said.

[So they went from door to door and asked.|So {h} went back to the place and waited. An hour went by, and then another.] [At the very end of the street|At last], there was {who}, looking for something on the ground. ["Did you lose something?" asked {h}.|"Are you looking for this?" asked {h}, and held out the {thing}.] "[My {thing}|Oh, yes]!" cried {w}. "[I thought I would never see it again|I have been looking for it all day]."

{w} [wiped {his} eyes|smiled with {his} whole face|shook {h.his} hand]. "[Not everyone would have brought it back|You are an honest {h.kind}]," said {w}. ["How can I thank you?" "You don't have to," said {h}.|"Please, come in and have some cake." So there was cake and hot chocolate.] [{h} walked home with empty pockets, but {h.his} heart was full.|And what do you think stood in front of {h}'s door a week later? It was a {want}!|{h} still did not have a {want}. But {h.he} slept very well that night.] ["You were right," said {f}.|Being honest felt better than any {want}.|]

== the moon
want = put it in a jar next to {h.his} bed|give it to {e}|keep it as a lamp|play with it like a ball

{open} More than anything, {h} wanted [to have the moon|to catch the moon]. {h.He} wanted to {want}. One [clear|warm|quiet] night, the moon was [big and yellow|round and bright]. It looked so close! {h} stood on {h.his} toes and reached for it, but {h.he} could not touch it.

[{h.He} climbed on the table, and from the table onto the roof.|{h.He} took a ladder and climbed the tallest tree.|{h.He} ran up the highest hill.] The moon was still too far away. [{h} took a long net and waved it in the air. {h.He} caught only a moth.|{h} jumped and jumped until {h.he} was out of breath.|"Come down!" called {h}. The moon did not answer.] "What are you doing up there?" asked {f}. "I am catching the moon," said {h}. ["May I help?" asked {f}.|{f} did not laugh. "That is hard," said {f}.]

[On the way home, they came to the pond.|They sat down by the pond to think.] {then} {h} [stood still|grabbed {f}'s arm]. There was the moon, right in the water! "[It fell down|Now I have it]!" cried {h}. {h.He} [jumped in|took a bucket and scooped it up]. [The water splashed, and the moon broke into a thousand pieces.|But as soon as the water moved, the moon fell apart.] "[Now I broke it|Oh, no]," said {h}. "[Wait|Look]," said {f}. The water grew still, and the moon was whole again. [And above them, in the sky, was the other one.|"It is only a picture of the moon," said {f}. "The real one is still up there."]

{h} [laughed|sighed]. "[Maybe the moon belongs in the sky|Nobody can catch the moon]," {h.he} said. "[But everyone can look at it|And there it can shine for all of us]," said {f}. So they [lay down in the grass|sat side by side] and looked up [for a long, long time|until they grew sleepy]. [And it seemed to {h} that the moon smiled.|When {h} walked home, the moon came along, all the way to {h.his} window.|{sleep}, and the moon shone on {h.his} pillow.]

== the scarecrow
bird = crow|sparrow|blackbird|pigeon
give = an old red coat|a hat with a flower|a blue scarf|a pair of old gloves

In the middle of a [corn field|wheat field] stood a scarecrow. [He had a hat of straw and two button eyes.|He was made of straw and old clothes.] Every day, he stood there all alone. The birds were afraid of him, and [nobody ever came to visit|nobody ever said hello]. "[I wish I had a friend|I am so lonely]," he said to the wind. [The wind only blew the dust around.|But the wind was always in a hurry.]

{day}, {h} came [along the path|through the field]. "Good morning!" said {h}. The scarecrow was so surprised that his hat [fell off|slid over his eyes]. "You are not afraid of me?" he asked. "[No, why should I be?|You have a kind face]," said {h}. {h.He} [put the hat back on his head|sat down next to him and shared {h.his} bread, and the crumbs fell all around]. [They talked about the clouds and the rain.|{h} told him about {h.his} home, and he told {h.him} about the stars at night.] "[Why are you sad?|You look sad]," said {h}. "I would like to be friends with the birds," said the scarecrow. "But they always fly away."

{h} [thought {meanwhile}|had an idea]. {h.He} [put some seeds into the scarecrow's pockets and on his arms|put a bowl of water at his feet and seeds in his hat]. "[Now stand very still|Now we wait]," said {h}. [They waited and waited.|For a long time, nothing happened.] Then a little {bird} came down. It [looked at the scarecrow with one eye, and took a seed|hopped closer, and closer, and sat down on his arm]. [Soon another one came, and another.|It called its friends, and soon ten of them were sitting on his arms.] The scarecrow [was so happy that his straw tickled|smiled his biggest smile].

{h} came [every day|almost every day] after that. In the autumn, {h.he} brought {give}, so that he would not be cold. [And the birds told him stories from faraway lands.|And in the spring, the {bird} built a nest in his pocket.|The farmer was surprised to see a scarecrow full of birds. But he was a kind man, and there was enough corn for all.] [The scarecrow was never lonely again.|And if you walk by that field, you can hear them laughing.]

== the sick friend
ill/cant = a cold/sneezed all day long|a bad cough/coughed all night|a sore throat/could only whisper|a fever/felt hot and cold at the same time|spots all over/had to stay in bed

{pals} But {day2}, {f} did not come out to play. {f} had {ill} and {cant}. [{h} knocked at the door, but {f} had to rest.|"{f} must stay in bed this week," said {f}'s mother.] {h} [sat down on the steps|walked home slowly]. [It was no fun to play alone.|The day was long and gray.] "How can I [make {f} feel better|cheer up my friend]?" {h.he} [thought|wondered].

[First, {h} wanted to pick flowers, but {f} could not smell them. Then {h.he} wanted to bring cake, but {f} was not hungry.|"I could sing," {h.he} thought, "but {f} needs to sleep."] At last, {h} had an idea. [{h.He} took paper and paint, and drew a picture for each day of the week.|{h.He} wrote a funny story about a [frog|goat|king] who sneezed so hard that he flew to the moon.|{h.He} stood in front of {f}'s window and played a show with two socks.] [{e} cooked soup, and {h} carried it over, and did not spill a drop.|And {e} gave {h.him} a jar of honey for {f}'s tea.]

When {f} [saw it|looked up], {f.he} began to smile. Then {f.he} [began to laugh|laughed out loud]. "[Do it again|One more time, please]!" said {f}. [So {h} came every day, and every day there was something new.|The next day, {h} came back, and the day after that, too.] [And each day, {f} felt a little better.|And laughing, as everyone knows, is good medicine.]

[A week later|Soon], {f} was well again. [The first thing {f.he} did was to run to {h}'s house.|They ran and jumped and rolled in the grass.] "[You made me well|You are the best doctor]," said {f}. {h} [laughed. "Achoo!" said {h}. "Oh, no," said {f}. "Now it is my turn to bring you soup!"|was {glad}. "It was mostly the soup," said {h}.|smiled. "I only missed you," {h.he} said.]

== the river (animal)
x = leaf|twig|paper boat|cork
far = the sea|the end of the river|the big lake

{begin} dropped a {x} into the river and watched it float away. "Where does it go?" {h.he} asked {e}. "[To {far}, I think|Nobody knows for sure]," said {e}. [All day, {h} thought about it.|{h} could not stop thinking about it.] "[I want to see it|I will follow it]," {h.he} said. {h.He} packed [some nuts|some berries and a blanket] and walked along the river. [{f} came, too, because two are braver than one.|{f} came along, because {f.he} loved to walk.]

[They walked past the mill and under the bridge.|They walked past sleepy cows and yellow fields.] [A fish jumped out of the water. "Is it far to {far}?" asked {h}. "Far for feet, near for fins," said the fish.|They asked a heron for the way. "Just keep the water on your left side," it said.|At noon they ate, and put their tired feet into the cool water.] In the evening, they [slept under a tree and listened to the water|made a bed of leaves]. "[Do you miss home?|Are you afraid?]" asked {f}. "[A little|Not with you here]," said {h}.

The next day, the river grew wider and wider. And then they saw it. [It was so big that there was no other side.|The water went on and on, all the way to the sky.] [The two friends said nothing for a long time.|"Oh," said {h}. It was all {h.he} could say.] The sun made a golden road on the water. [And there, on the sand, lay the {x}!|And there, between two stones, was the little {x}.] "[It was here before us|You made it]!" {h} told it[, and laughed|].

They [picked up a shell|filled a bottle with sand], to show it to {e}, and walked back home. [The way back was shorter, as it always is.|They had so much to tell.] {e} was waiting with [dinner|warm soup]. "[Well, where does it go?|What did you find?]" asked {e}. {h} [held the shell to {e}'s ear|closed {h.his} eyes and smiled]. "[It goes to the beginning of the sky|It goes to a place as big as a dream]," said {h}. [And that night, {h} could still hear the waves.|And {e} wanted to see it, too. So the next summer, they all went together.]

== too small
want = reach the top shelf|ride the big horse|carry the big basket|stay up late|go to the fair alone|ring the big bell
thing = ring|key|lucky coin|watch|brooch
n = Bob|Joe|Fred|George

{h} was the smallest in the family. "[You are too small|Wait until you are bigger]," everyone always said, when {h} wanted to {want}. {h} [did not like to be small|wished to be big]. [Every morning, {h.he} stood against the wall to see if {h.he} had grown. But {h.he} was just the same.|{h.He} ate all of {h.his} carrots and stretched in bed, but it did not help.]

{day}, {e}'s {thing} fell [down a hole|through a gap] in the floor. "{oh} My {thing}!" cried {e}. Everyone came to help. {e} tried to reach it, but {e.his} hand was too big. [Uncle {n} tried with a stick, but the stick was too short.|Uncle {n} tried with a spoon on a string, but it was no use.|Uncle {n} tried with a magnet, but the magnet fell in, too.] "[We will have to break the floor|It is gone forever]," said {e} sadly. "[Let me try|May I try]?" said {h}. ["But you are too small," began {e}, and then stopped.|Everyone looked at {h}. This time, nobody said that {h.he} was too small.]

{h} lay down on the floor and put {h.his} [little|thin] arm into the hole. [It was dark in there, and full of spider webs.|It was dusty, and it tickled.] {h.He} felt [a nail, and then a dry pea|something soft, and hoped that it was only dust]. [{h} stretched a little more, and a little more.|"Just a little more," said {h}.] And then {h.he} had it! {h.He} pulled out {h.his} arm, [all black with dust|gray up to the shoulder], and held up the {thing}. "[Here it is|I have it]!" {h.he} cried.

Everyone cheered. {e} [lifted {h} up high|hugged {h} and got dusty, too]. "[Nobody else could have done that|What would we do without our smallest one]," said {e}. {h} was {proud}. [And that night, {h.he} was allowed to stay up until the stars came out.|As a reward, {h} could choose what was for dinner. It was pancakes, of course.] [{since} {h} did not mind being small.|"I can be big later," said {h}. "Now I am busy being small."|And when {h} stood against the wall the next morning, {h.he} really had grown a tiny bit.]

== the two on the bridge (animal)
carry = a big sack of flour|a long ladder|a pile of wood|a basket of eggs

There was a narrow bridge over the river. It was so narrow that only one could cross at a time. {day}, {h.full} came from one side, with {carry}. From the other side came {f.full}. In the middle of the bridge, they met. "[Let me through|Go back]," said {h}. "[I was here first|No, you go back]," said {f}. [They stood nose to nose.|Neither of them wanted to move.]

["I have something heavy to carry," said {h}.|"I am in a hurry," said {h}.] "[So am I|And I have been walking all day]," said {f}. The sun [rose higher|grew hot]. [A frog in the water laughed at them.|Behind them, others came and had to wait.] [{h} stamped {h.his} foot, and the bridge shook.|{f} stamped {f.his} foot, and the bridge shook.] Crack went one of the boards! "[Careful|Stop]!" they both cried, and [held on to each other|stood very still]. Far below them was the cold water.

[For a moment, nobody spoke.|They looked down, and then they looked at each other.] "[This is silly|We will both fall in]," said {h}. "[If I lie down, you can climb over me|I will go back, and you can come across first]," {h.he} said. "[No, I will do it|That is kind of you]," said {f}. [Very carefully, they did just that.|Step by step, they did it, and the bridge held.] On the other side, {h} put down {h.his} load and sighed. ["That was easy," said {f}.|"Why did we not do that at once?" asked {f}.]

["Let me help you carry that," said {f}.|They shared some bread and sat in the sun for a while.] [Before they went on, they mended the broken board together.|The next day, they came back with new boards, and built a bridge that was wide enough for two.] [And whenever they met there after that, each of them said, "After you!"|It is better to step back than to fall in.|From that day, it was called the Bridge of Friends.]

== the little cloud
wet/joy = flowers/lifted their heads|carrots/grew fat and sweet|old apple tree/drank until it was full|frogs/sang for joy|corn/stood up tall

High up in the sky lived a little cloud. [The other clouds were big and gray.|All the other clouds were bigger.] They made rain and thunder. "[You are too little to rain|You can't do anything]," they said, and [floated away|laughed]. The little cloud was sad. [It drifted over the hills, all alone.|It hid behind a mountain and cried, but it was such a small cry that nobody noticed.]

Down below, {h} stood in the garden. [It had not rained for weeks.|The summer was very dry.] The {wet} needed water, but the well was empty. {h} looked up. "[Little cloud|Hello, little cloud]!" {h.he} called. "[Can you help me?|Please, can you rain a little?]" "I am too small," said the cloud. "[I only need a little rain|My garden is small, too]," said {h}. "[Just try|I believe in you]!"

The little cloud [took a deep breath|puffed itself up]. [It squeezed and squeezed.|It thought of every sad thing it knew.] Plip. One drop fell, right on {h.his} nose. {h} laughed. "[That was a good one|Again, again]!" {h.he} said. [And the cloud laughed, too, and when it laughed, it began to rain.|Plip, plop, came two more. And then it really began to rain.] It was [not a storm|a small rain], but it was [soft and warm|just right]. {h} danced in it [with open arms|until {h.he} was wet from head to toe]. And the {wet} {joy}.

When it was over, [the little cloud was as thin as a feather, but it was happy|the little cloud glowed in the evening sun]. "[Thank you|You saved my garden], little cloud!" said {h}. [Each summer, the cloud came back to the garden.|{since} the two were friends, and {h} waved whenever {h.he} saw it.] [And the big clouds never called it useless again.|Small things can do great good, if someone believes in them.|If one day a single drop falls on your nose, look up. Perhaps it is the little cloud, saying hello.]

== the cookie thief
food = cookies|buns|apple tarts|muffins|nut cakes
thief/is = mouse/a mouse with five hungry little ones|raccoon/a raccoon who had hurt its foot|squirrel/a squirrel who could no longer climb|cat/a cat with three tiny kittens
trap = put flour on the floor|tied a bell to the plate|hid behind the curtain with a lamp

Every morning, {e} put a plate of {food} on the window sill to cool. And every morning, one was missing. "[Did you take it|Who took it]?" {e} asked. "[No, it was not me|I did not]," said {h}. [{e} was not so sure.|{e} raised one eyebrow.] "[I will catch the thief|I will prove it]," said {h}.

That evening, {h} {trap}. [Then {h.he} waited.|{f} came over to help, and they waited together.] [The clock went tick, tock, tick, tock.|{h.He} almost fell asleep.] {then} there was a sound! [Something small ran across the floor.|Two eyes shone in the dark.] ["I see you!" whispered {h}.|{h} held {h.his} breath.] It was a {thief}! It [took one of the {food}|took a piece], [looked around, |]and was gone. {h} followed it [quietly|on tiptoe], out of the door and across the yard, all the way to the old shed.

[{h} looked through a crack in the wall.|Slowly, {h} opened the door.] Inside, on a bed of straw, was {is}. [{h} was not angry anymore.|All at once, {h} felt sorry.] "[You were only hungry|So that is why]," {h.he} said softly. [The {thief} looked up, and shook with fear.|The {thief} looked at {h.him} with big eyes.] "[I will not hurt you|It's all right]," said {h}, and {quick} back to tell {e}.

{e} [came to look, and {e.his} face grew soft|listened, and put on {e.his} coat]. "[Nobody should have to steal because of hunger|Well, that changes everything]," said {e}. [Together, they brought a warm blanket and a bowl of milk.|They made a warm bed in a box, and filled a bowl with good things.] {since} there were two plates on the window sill. [One was for the family, and one was for the {thief}.|On the small one, {h} had written, "For the thief."] [And nothing was ever missing again.|And {e} told {h}, "I am sorry that I did not believe you."|The {thief} became the best friend {h} ever had.]

== the old toy
t/broke = bear/lost an arm|rabbit/lost an ear|monkey/lost its tail|dog/lost an eye|elephant/had a big hole in its back
new = robot|train with lights|talking parrot|doll with golden hair|red race car

{h} had an old toy {t}. [It had been with {h.him} since {h.he} was a baby.|It was {h.his} very first toy.] [Its fur was thin and its color was gone|It was worn and faded], but it knew all of {h.his} secrets. Then, [on {h.his} birthday|one day], {h} got a new {new}. [It was shiny and fast.|It could do everything.] "[I don't need the {t} anymore|This is much better]," said {h}, and {h.he} [put the {t} in a box in the attic|threw the {t} into a corner].

[At first, the {new} was great fun.|For three days, {h} played only with the {new}.] But at night, it was [hard and cold|no good to hug]. [One night, there was a storm, and {h} was afraid.|One night, {h} had a bad dream.] {h.He} reached out for the {t}, but it was not there. [{h} began to cry.|{h} felt all alone.] {h.He} climbed out of bed [with a candle|in bare feet], and went to look for it. [And there it lay, in the dust.|There it was, all alone in the dark.] "[I am so sorry!|How could I forget you?]" whispered {h}. Then {h.he} saw that it had {broke}.

"Can you fix it?" {h} asked {e} in the morning. {e} [took out a needle and thread|put on {e.his} glasses and looked closely]. "[It will not look like new|I will try]," said {e}. "[I don't want it to look like new|It only has to be my {t}]," said {h}. [{e} worked slowly, and {h} held the {t} so that it would not be afraid.|They worked together, and {h} chose the color of the thread. It was red.] [Soon the {t} was well again.|And when it was done, the {t} seemed to smile.]

[{h} kissed it on the nose.|{h} held it tight.] "[Welcome home|Never again]," {h.he} said. [That night, the {t} lay on the pillow, and the {new} stood on the shelf.|The {new} got a place on the shelf, but the {t} got the place in {h.his} arms.] [Outside, the wind blew, but {h} was not afraid.|And {h} told it everything that had happened.] [New things are nice, but an old friend is better.|And there it stayed, every night, until {h} was grown up. And maybe even then.]

== the letter
from = the sea|the mountains|the big city|an island
news = a whale as long as a ship|a goat that could open doors|a market with a hundred lights|a lighthouse with a blue door|a road that went up into the clouds

{h} and {f} had always lived next to each other. [They had played together every day of their lives.|There was a hole in the fence, just big enough for them.] But one day, {f} and {f.his} family moved far away, to {from}. [{h} waved until {h.he} could not see {f.him} anymore.|"Don't forget me," said {f}. "Never," said {h}.] After that, [the street was very quiet|everything seemed gray]. [{h} sat by the fence, but nobody came.|Even {h.his} favorite games were no fun.]

["I miss {f} so much," said {h}.|"Now I have no friend," said {h}.] {e} [brought paper and a pencil|gave {h.him} a sheet of paper]. "[Why don't you write a letter?|Words can travel far]," said {e}. {h} sat down and [thought hard|chewed on the pencil]. {h.He} wrote about [the new puppy next door|the first snow|the big puddle by the gate], and how much {h.he} missed {f}. [At the end, {h.he} drew the two of them, holding hands.|{h.He} put a dry leaf from their favorite tree into it.] Then {h.he} brought it to the mailbox.

[One week went by, and then another.|Every day, {h} waited for the mailman. "Nothing today," he said.] [{h} was afraid that {f} had forgotten {h.him}.|"Maybe it got lost," thought {h}.] But then, {day2}, there was a letter in the box! {h.His} hands were shaking when {h.he} opened it. {f} wrote about {news}. "[But there is nobody here who laughs like you|I miss you every day]," {f.he} wrote. "[Come and visit me in the summer|I have put your picture over my bed]!"

{h} read it [three times|again and again]. Then {h.he} [ran to tell {e}|danced through the whole house]. [From then on, a letter came every week, and a letter went out every week.|They wrote to each other all winter long.] And in the summer, [{h} took the train to {from}|{h} packed {h.his} bag and went to {from}]. [There stood {f}, waving with both arms.|{f} had grown, but {f.his} laugh was just the same.] [They had so much to tell each other, and yet they could only laugh.|"You see," said {e}, "good friends are never really far away."|It was as if they had never been apart.]
"""))


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    rng = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    print("\n\n---\n\n".join(story(rng) for _ in range(count)))
