"""Writes 200 sentences about five topics, one per line, with a tab and the topic. Everything is made here.

    python3 sentences.py >sentences.tsv
"""

TOPICS = {
    "weather": (
        "The fog over the harbour|A cold wind from the north|Heavy rain since midnight|The first snow of the year|The heat of this week|"
        "A thunderstorm in the hills|The frost on the fields|The clear sky of the evening|The hail of yesterday|A mild breeze",
        "will last until Thursday|came earlier than expected|surprised everyone in the valley|makes driving dangerous",
    ),
    "sport": (
        "The goalkeeper of our team|A young swimmer from Lisbon|The final of the cup|The coach of the visitors|The marathon in April|"
        "A penalty in the last minute|The tennis player|The cyclist in the yellow jersey|The rowing club|The referee",
        "won the applause of the crowd|decided the whole season|will be remembered for years|lost the race by a second",
    ),
    "food": (
        "The soup with leeks and cream|A loaf of rye bread|The baked trout|My grandmother's apple pie|The curry with lentils|"
        "A salad of tomatoes and basil|The roasted chestnuts|The cheese from the mountains|A plate of fresh noodles|The plum jam",
        "needs a little more salt|tastes best when it is warm|was finished in five minutes|goes well with boiled potatoes",
    ),
    "music": (
        "The violin in the second movement|A choir of forty children|The old piano in the hall|The drummer of the band|Her new song|"
        "The opera about a miller|A quartet for strings|The trumpet solo|The melody of the waltz|The organ of the cathedral",
        "sounded louder than the rest|was written in a single night|moved the audience to tears|needs to be tuned again",
    ),
    "travel": (
        "The night train to Vienna|Our flight to Oslo|The ferry across the strait|A passport without a stamp|The hotel by the station|"
        "The tour through the desert|A ticket for both islands|The bus to the airport|The guide with the red umbrella|The suitcase",
        "was booked months ago|arrived two hours late|costs more during the holidays|had to wait at the border",
    ),
}

for place in range(40):
    for topic, (subjects, ends) in TOPICS.items():
        subjects, ends = subjects.split("|"), ends.split("|")
        print(f"{subjects[place % 10]} {ends[(place // 10 + place) % 4]}.\t{topic}")
