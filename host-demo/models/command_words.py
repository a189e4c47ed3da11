"""The words of spoken commands in English, German and Hindi: rooms, devices, numbers, amounts and fillers."""

# English rooms; German rooms with their preposition, and as the beginning of a compound; Hindi rooms before a postposition.
EN_ROOMS = "kitchen living_room,lounge bedroom bathroom,bath hall,hallway,corridor office,study nursery,kids'_room,children's_room garage cellar,basement attic,loft"
DE_ROOMS = ("in_der_Küche:Küchen im_Wohnzimmer:Wohnzimmer,in_der_Stube:Stuben im_Schlafzimmer:Schlafzimmer im_Bad:Bad,im_Badezimmer:Badezimmer "
            "im_Flur:Flur,in_der_Diele:Dielen im_Büro:Büro,im_Arbeitszimmer:Arbeitszimmer im_Kinderzimmer:Kinderzimmer in_der_Garage:Garagen "
            "im_Keller:Keller auf_dem_Dachboden:Dachboden,im_Dachgeschoss:Dachgeschoss,unter_dem_Dach:Dach")
HI_ROOMS = ("रसोई,किचन,रसोईघर बैठक,लिविंग_रूम,ड्रॉइंग_रूम बेडरूम,सोने_के_कमरे,शयनकक्ष बाथरूम,स्नानघर,गुसलखाने गलियारे,हॉल,दालान ऑफ़िस,दफ़्तर,स्टडी "
            "बच्चों_के_कमरे,नर्सरी गैराज,गैरेज तहखाने,बेसमेंट अटारी,ऊपर_के_कमरे")
# Devices: English; German with nominative and accusative articles, p for plural; Hindi with the gender of the genitive.
EN_DEVICES = {"light": "light lights lamp lamps", "heating": "heating heater radiator", "blinds": "blinds shutters curtains"}
DE_DEVICES = {"light": "das:das:Licht: die:die:Lampe: die:die:Lampen:p die:die:Beleuchtung:",
              "heating": "die:die:Heizung: der:den:Heizkörper: die:die:Heizung:",
              "blinds": "das:das:Rollo: die:die:Rollos:p die:die:Jalousien:p die:die:Jalousie: die:die:Vorhänge:p"}
HI_DEVICES = {"light": "बत्ती:की लाइट:की लाइटें:की बत्तियाँ:की लैंप:का", "heating": "हीटर:का हीटिंग:की रेडिएटर:का",
              "blinds": "परदे:के ब्लाइंड्स:के पर्दे:के शटर:के"}
# Devices and places that the house does not have: training uses the first list of each, the evaluation uses both.
EN_OTHERS = ("radio TV music fan oven door window alarm camera vacuum dishwasher heart book computer coffee_machine washing_machine phone car toaster "
             "speaker kettle printer water doorbell lock", "fridge television mixer fountain projector")
EN_PLACES = "garden balcony street car neighbour's_house shed terrace school city yard pool stable", "park church greenhouse"
DE_OTHERS = ("das:das:Radio: der:den:Fernseher: die:die:Musik: der:den:Ventilator: der:den:Ofen: die:die:Tür: das:das:Fenster: der:den:Wecker: die:die:Kamera: "
             "der:den:Staubsauger: die:die:Kaffeemaschine: die:die:Waschmaschine: das:das:Handy: das:das:Auto: der:den:Toaster: der:den:Drucker: das:das:Wasser: "
             "die:die:Klingel: das:das:Buch: der:den:Computer:", "der:den:Kühlschrank: der:den:Mixer: der:den:Lautsprecher: das:das:Schloss:")
DE_PLACES = ("im_Garten:Garten auf_dem_Balkon:Balkon auf_der_Straße:Straßen im_Auto:Auto im_Schuppen:Schuppen auf_der_Terrasse:Terrassen in_der_Schule:Schul "
             "im_Hof:Hof im_Stall:Stall beim_Nachbarn:Nachbar", "im_Park:Park in_der_Kirche:Kirchen im_Gewächshaus:Gewächshaus")
HI_OTHERS = ("रेडियो:का टीवी:का गाना:का पंखा:का ओवन:का दरवाज़ा:का खिड़की:की अलार्म:का कैमरा:का किताब:की कंप्यूटर:का फ़ोन:का गाड़ी:की टोस्टर:का केतली:की पानी:का "
             "घंटी:की ताला:का कॉफ़ी_मशीन:की वॉशिंग_मशीन:की", "फ्रिज:का मिक्सर:का स्पीकर:का प्रिंटर:का")
HI_PLACES = "बगीचे बालकनी सड़क गाड़ी पड़ोसी_के_घर शेड छत स्कूल शहर आँगन बाज़ार", "पार्क मंदिर दुकान"

EN_ONES = ("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen").split()
EN_TENS = "zero ten twenty thirty forty fifty sixty seventy eighty ninety".split()
DE_ONES = "null ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn siebzehn achtzehn neunzehn".split()
DE_TENS = "null zehn zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig".split()
HI_ONES = ("शून्य एक दो तीन चार पाँच छह सात आठ नौ दस ग्यारह बारह तेरह चौदह पंद्रह सोलह सत्रह अठारह उन्नीस बीस इक्कीस बाईस तेईस चौबीस पच्चीस छब्बीस सत्ताईस "
           "अट्ठाईस उनतीस तीस").split()
HI_TENS = {40: "चालीस", 50: "पचास", 60: "साठ", 70: "सत्तर", 80: "अस्सी", 90: "नब्बे", 100: "सौ", 35: "पैंतीस", 45: "पैंतालीस", 75: "पचहत्तर"}


def spoken(lang, n):
    """A number in words, or None for numbers that are always written in digits."""
    if lang == "hi":
        return HI_ONES[n] if n <= 30 else HI_TENS.get(n)
    ones, tens = (EN_ONES, EN_TENS) if lang == "en" else (DE_ONES, DE_TENS)
    if n < 20:
        return "eins" if lang == "de" and n == 1 else ones[n]
    if n > 100:
        return None
    if n == 100:
        return {"en": "a hundred", "de": "hundert"}[lang]
    ten, one = divmod(n, 10)
    if one == 0:
        return tens[ten]
    return f"{tens[ten]} {ones[one]}" if lang == "en" else f"{ones[one]}und{tens[ten]}"


UNITS = {"percent": {"en": [" percent", " percent", "%", " %"], "de": [" Prozent", " Prozent", "%", " %"], "hi": [" प्रतिशत", " प्रतिशत", "%", " फ़ीसदी"]},
         "degrees": {"en": [" degrees", " degrees", "°", " °C", " degrees Celsius"], "de": [" Grad", " Grad", "°", " °C", " Grad Celsius"],
                     "hi": [" डिग्री", " डिग्री", "°", " °C", " डिग्री सेल्सियस"]}}


def value(rng, lang, device, n):
    text = spoken(lang, n) if rng.random() < 0.35 else None
    unit = rng.choice(UNITS["degrees" if device == "heating" else "percent"][lang])
    if lang == "de" and n == 1 and text:
        text = "ein"
    if lang == "en" and n == 1:
        unit = unit.replace("degrees", "degree")
    return text + (" " + unit.strip() if unit.strip() in "%°°C" else unit) if text else f"{n}{unit}"


AMOUNTS = {"en": ("[a little|a bit|slightly|a touch|a little bit]", "[a lot|much|by a lot|very much]", "by {v}"),
           "de": ("[ein wenig|etwas|ein bisschen|ein klein wenig|leicht]", "[viel|deutlich|stark|sehr viel]", "um {v}"),
           "hi": ("[थोड़ा|ज़रा सा|थोड़ा सा|हल्का सा|थोड़ी]", "[बहुत|काफ़ी|बहुत ज़्यादा]", "{v}")}
FILLERS = {"en": "now,then,well,okay,right,so,maybe,again,quickly,hey,actually,kindly,for me,thanks,today,tonight,right now,first,also,just,if you can,my friend,hello,listen,sir,"
                 "when you have time,in the evening,for the guests,this time,please,and,quick,if possible,right away,oh,um,uh",
           "de": "jetzt,mal,bitte,doch,also,gut,schnell,noch,gleich,sofort,einmal,für mich,danke,heute,kurz,zuerst,auch,hallo,hör mal,wenn du kannst,mein Freund,dann,nun,"
                 "heute Abend,für die Gäste,wenn du Zeit hast,diesmal,wenn möglich,und,oh,äh,okay,na",
           "hi": "अब,तो,अभी,ज़रा,कृपया,जल्दी,फिर,ठीक है,सुनो,आज,मेरे लिए,पहले,भी,भाई,अच्छा,नमस्ते,चलो,एक बार,तुरंत,शाम को,मेहमानों के लिए,अगर हो सके,इस बार,और,अरे,हाँ,तो फिर,धन्यवाद"}


def words(text):
    return [[form.replace("_", " ") for form in entry.split(",")] for entry in text.split()]


ROOM_FORMS = {"en": words(EN_ROOMS), "de": words(DE_ROOMS), "hi": words(HI_ROOMS)}
DEVICES = {"en": EN_DEVICES, "de": DE_DEVICES, "hi": HI_DEVICES}
OTHERS = {"en": EN_OTHERS, "de": DE_OTHERS, "hi": HI_OTHERS}
PLACES = {"en": EN_PLACES, "de": DE_PLACES, "hi": HI_PLACES}
SYLLABLES = {"en": "ba ter mo lin gra son pel ti ver cu ron dle sh fo ni".split(), "de": "ge ster mo lin kra ung pel ti ver schu ron fel bo ni ter".split(),
             "hi": "का मो लि ना पे रा टू सी वा गो धा शी".split()}
