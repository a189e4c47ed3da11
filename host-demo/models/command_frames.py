"""The frames of spoken commands in English, German and Hindi. See utterances.py for their form."""

# The command itself. {o}: a device with its room ("the kitchen lights", "the lights in the kitchen"); {d}: the device
# alone; {in}: "in the kitchen"; {a}: an amount; {v}: a value. German: {n} is {o} in the nominative, {dn} is {d}, with {ist},
# {soll} and {kann}; {ihn}, {ihm}... are avoided. Hindi: {in} ends with में.
FRAMES = {
    "en on": """
[turn|switch|put] on {o}
[turn|switch|put] {o} on
{in} [turn|switch] on {d}
{in} [turn|switch|put] {d} on
[can|could|would|will] you [please|] [turn|switch] {o} on
[can|could|would] you [please|] [turn|switch] on {o}
[I want|I need|I would like|we need] {o} [on|turned on|switched on]
[I want|I would like] {o} to be [on|turned on|switched on]
[I would like|I want] you to [turn|switch] on {o}
{o} on [please|]
{in} {d} on
[make sure|see to it] that {o} [is|are] on
[let us have|get|have] {o} [turned on|switched on|on]
[start|activate] {o}
[start|activate] {d} {in}
you [can|may|should] [turn|switch] {o} on
[do|did] you [turn|switch] on {o} no then do it
it [is|would be] time to [turn|switch] on {o}
{o} [please|] [turn|switch] on
[turn|switch] {d} on {in}
[let's|let us] [turn|switch] {o} on
! [I would like|I want] you to [turn|switch] {o} on
! it is time to [turn|put] {o} on
! [would|could] you [start|activate] {o}
! you should [start|activate] {o}
! {in} [I want|I would like] {d} [on|turned on]
! [make sure|see to it] that {d} {in} [is|are] [turned|switched] on
! [can|will] you [turn|switch] on {d} {in}
! [we need|let us have] {d} on {in}
! {in} [start|activate] {d}
""",
    "en off": """
[turn|switch|put] off {o}
[turn|switch] {o} off
{in} [turn|switch] off {d}
{in} [turn|switch] {d} off
[can|could|would|will] you [please|] [turn|switch] {o} off
[can|could|would] you [please|] [turn|switch] off {o}
[I want|I need|I would like|we need] {o} [off|turned off|switched off]
[I want|I would like] {o} to be [off|turned off|switched off]
[I would like|I want] you to [turn|switch] off {o}
{o} off [please|]
{in} {d} off
[make sure|see to it] that {o} [is|are] off
[let us have|get|have] {o} [turned off|switched off|off]
[stop|deactivate|kill|shut off] {o}
[stop|deactivate] {d} {in}
you [can|may|should] [turn|switch] {o} off
it [is|would be] time to [turn|switch] off {o}
[turn|switch] {d} off {in}
nobody [needs|wants] {o} [turn|switch] it off
[let's|let us] [turn|switch] {o} off
! [I would like|I want] you to [turn|switch] {o} off
! it is time to [turn|put] {o} off
! [would|could] you [stop|deactivate] {o}
! you should [stop|deactivate|kill] {o}
! {in} [I want|I would like] {d} [off|turned off]
! [make sure|see to it] that {d} {in} [is|are] [turned|switched] off
! [can|will] you [turn|switch] off {d} {in}
! [we need|let us have] {d} off {in}
! {in} [stop|deactivate] {d}
""",
    "en up": """
[turn|put] up {o} {a}
[turn|put] {o} up {a}
[can|could|would] you [turn|put] {o} up {a} [please|]
[can|could|would] you [turn|put] up {o} {a}
{in} [turn|put] {d} up {a}
[turn|put] {d} up {a} {in}
[raise|increase] {o} {a}
[raise|increase] {d} {a} {in}
[can|could|would] you [raise|increase] {o} {a}
[I want|I would like|we need] {o} [turned up|raised|increased] {a}
{o} up {a}
{a} up with {o}
[I would like|I want] you to [turn up|raise|increase] {o} {a}
{in} [raise|increase] {d} {a}
it [is|would be] time to [raise|turn up] {o} {a}
[let's|let us] [raise|increase|turn up] {o} {a}
! {in} [I want|I would like] {d} [turned up|raised] {a}
! [would|could] you [turn|put] {d} {in} up {a}
! [I would like|I want] you to [turn|put] {o} up {a}
! it is time to [increase|put up] {o} {a}
! {o} [raise|increase] {a}
! you should [raise|turn up] {o} {a}
""",
    "en down": """
[turn|put] down {o} {a}
[turn|put] {o} down {a}
[can|could|would] you [turn|put] {o} down {a} [please|]
[can|could|would] you [turn|put] down {o} {a}
{in} [turn|put] {d} down {a}
[turn|put] {d} down {a} {in}
[lower|reduce|decrease] {o} {a}
[lower|reduce] {d} {a} {in}
[can|could|would] you [lower|reduce] {o} {a}
[I want|I would like|we need] {o} [turned down|lowered|reduced] {a}
{o} down {a}
{a} down with {o}
[I would like|I want] you to [turn down|lower|reduce] {o} {a}
{in} [lower|reduce|decrease] {d} {a}
it [is|would be] time to [lower|turn down] {o} {a}
[let's|let us] [lower|reduce|turn down] {o} {a}
! {in} [I want|I would like] {d} [turned down|lowered] {a}
! [would|could] you [turn|put] {d} {in} down {a}
! [I would like|I want] you to [turn|put] {o} down {a}
! it is time to [reduce|put down] {o} {a}
! {o} [lower|decrease] {a}
! you should [lower|turn down] {o} {a}
""",
    "en set": """
[set|put|turn|bring] {o} to {v}
[set|put|turn] {d} to {v} {in}
{in} [set|put|turn] {d} to {v}
[can|could|would] you [please|] [set|put|turn] {o} to {v}
{o} to {v}
{o} at {v} [please|]
{v} for {o}
[I want|I would like|I need|we need] {o} [at|set to] {v}
[I would like|I want] you to [set|turn] {o} to {v}
[make|adjust] {o} to {v}
[make sure|see to it] that {o} [is|are] at {v}
[let us have|have|get] {o} at {v}
{in} [I want|I would like] {d} at {v}
[change|adjust] {o} to {v}
to {v} [set|put|bring] {o}
it [is|would be] time to [set|put] {o} to {v}
! {in} [change|adjust|bring] {d} to {v}
! [I would like|I want] you to [put|bring|adjust] {o} to {v}
! [would|could] you [bring|change|adjust] {o} to {v}
! [make sure|see to it] that {d} {in} [is|are] set to {v}
! you should [set|turn] {o} to {v}
! [set|bring] to {v} {o}
! {v} [please|] for {d} {in}
""",
    "en open": """
[open|open up] {o}
open {d} {in}
{in} open {d}
[can|could|would|will] you [please|] open {o}
[pull|draw] up {o}
[pull|draw|put] {o} up
[I want|I would like|I need|we need] {o} [open|opened|up]
[I would like|I want] you to open {o}
{o} [open|up] [please|]
[make sure|see to it] that {o} are open
[let us have|get|have] {o} [open|opened]
raise {o}
it [is|would be] time to open {o}
you [can|may|should] open {o}
{in} [pull|draw] up {d}
[let's|let us] open {o}
! [I would like|I want] you to [pull|draw] up {o}
! [could|would] you [raise|pull up] {o}
! {in} [I want|I would like] {d} [open|opened]
! it is time to [pull|draw] {o} up
! you should [pull up|raise] {o}
! [make sure|see to it] that {d} {in} are open
""",
    "en close": """
[close|shut] {o}
[close|shut] {d} {in}
{in} [close|shut] {d}
[can|could|would|will] you [please|] [close|shut] {o}
[pull|draw|let] down {o}
[pull|draw|let|put] {o} down
[I want|I would like|I need|we need] {o} [closed|shut|down]
[I would like|I want] you to [close|shut] {o}
{o} [closed|shut|down] [please|]
[make sure|see to it] that {o} are [closed|shut]
[let us have|get|have] {o} [closed|shut]
lower {o}
it [is|would be] time to [close|shut] {o}
you [can|may|should] [close|shut] {o}
{in} [pull|let] down {d}
[let's|let us] [close|shut] {o}
! [I would like|I want] you to [pull|let] down {o}
! [could|would] you [lower|pull down] {o}
! {in} [I want|I would like] {d} [closed|shut]
! it is time to [pull|draw] {o} down
! you should [pull down|lower] {o}
! [make sure|see to it] that {d} {in} are [closed|shut]
""",
    "de on": """
[schalte|schalt] {o} [ein|an]
[mach|mache|stell|stelle|dreh] {o} an
{in} {d} [einschalten|anschalten|anmachen]
{o} [einschalten|anschalten|anmachen] [bitte|]
[kannst|könntest|würdest] du [bitte|] {o} [einschalten|anschalten|anmachen]
[können|könnten|würden] Sie [bitte|] {o} [einschalten|anschalten]
[ich möchte|ich will|wir wollen] {o} [eingeschaltet|angeschaltet|an] haben
[ich möchte|ich will] dass {n} [an|eingeschaltet] {ist}
{n} {soll} [an sein|angehen|eingeschaltet sein]
{n} an
{in} {dn} an
[schalten|machen|stellen] Sie {o} an
schalten Sie {o} ein
[ich brauche|wir brauchen] {o} [an|eingeschaltet]
[sorge|sorg] dafür dass {n} an {ist}
[schalte|mach] {in} {d} an
[aktiviere|starte] {o}
{in} soll {dn} an sein
es ist Zeit {o} [einzuschalten|anzumachen]
lass {o} [angehen|anmachen]
du [kannst|sollst|solltest] {o} [anmachen|anschalten]
{in} [schalte|mach] {d} an
! {in} [kannst|könntest] du {d} [einschalten|anmachen]
! [sorge|sorg] dafür dass {in} {dn} [an|eingeschaltet] {ist}
! [ich möchte|ich will] {in} {d} [einschalten|anhaben|anmachen]
! [würden|könnten] Sie {in} {d} [anschalten|anmachen]
! [kannst|würdest] du {o} [aktivieren|starten]
! {in} [stell|dreh] {d} an
! [aktivieren|starten] Sie {o}
! du sollst {in} {d} [anschalten|einschalten]
""",
    "de off": """
[schalte|schalt|mach|mache|stell|stelle|dreh] {o} [aus|ab]
{in} {d} [ausschalten|abschalten|ausmachen]
{o} [ausschalten|abschalten|ausmachen] [bitte|]
[kannst|könntest|würdest] du [bitte|] {o} [ausschalten|abschalten|ausmachen]
[können|könnten|würden] Sie [bitte|] {o} [ausschalten|abschalten]
[ich möchte|ich will|wir wollen] {o} [ausgeschaltet|abgeschaltet|aus] haben
[ich möchte|ich will] dass {n} [aus|ausgeschaltet] {ist}
{n} {soll} [aus sein|ausgehen|ausgeschaltet sein]
{n} aus
{in} {dn} aus
[schalten|machen|stellen] Sie {o} [aus|ab]
[ich brauche|wir brauchen] {o} nicht mehr [schalte|mach] sie aus
[sorge|sorg] dafür dass {n} aus {ist}
[schalte|mach] {in} {d} aus
[deaktiviere|stoppe|lösche] {o}
{in} soll {dn} aus sein
es ist Zeit {o} [auszuschalten|auszumachen]
lass {o} [ausgehen|ausmachen]
du [kannst|sollst|solltest] {o} [ausmachen|ausschalten]
{in} [schalte|mach] {d} aus
! {in} [kannst|könntest] du {d} [ausschalten|ausmachen]
! [sorge|sorg] dafür dass {in} {dn} [aus|ausgeschaltet] {ist}
! [ich möchte|ich will] {in} {d} [ausschalten|aushaben|ausmachen]
! [würden|könnten] Sie {in} {d} [abschalten|ausmachen]
! [kannst|würdest] du {o} [deaktivieren|stoppen]
! {in} [stell|dreh] {d} ab
! [deaktivieren|stoppen] Sie {o}
! du sollst {in} {d} [abschalten|ausschalten]
""",
    "de up": """
[dreh|drehe|stell|stelle|mach] {o} {a} [höher|hoch|auf]
[erhöhe|steigere] {o} {a}
{in} {d} {a} [höher|hoch] [drehen|stellen]
{o} {a} [höher|hoch] [drehen|stellen] [bitte|]
[kannst|könntest|würdest] du [bitte|] {o} {a} [höher|hoch] [drehen|stellen]
[kannst|könntest] du {o} {a} [erhöhen|steigern|hochdrehen]
[drehen|stellen] Sie {o} {a} [höher|hoch]
{n} {soll} {a} höher
{n} {a} höher
{o} {a} [hochdrehen|erhöhen]
[dreh|stell] {in} {d} {a} [höher|hoch]
[ich möchte|ich will] {o} {a} [höher|hoch] haben
du [kannst|sollst] {o} {a} [höher|hoch] drehen
es ist Zeit {o} {a} [zu erhöhen|höher zu drehen]
erhöhen Sie {o} {a}
! {in} [kannst|könntest] du {d} {a} [höher|hoch] [drehen|stellen]
! {in} [erhöhe|steigere] {d} {a}
! [würdest du|könnten Sie] {o} {a} [erhöhen|hochdrehen]
! [ich möchte|ich will] dass {n} {a} höher {ist}
! du sollst {o} {a} [erhöhen|hochdrehen]
! {in} [ich will|ich möchte] {d} {a} höher haben
""",
    "de down": """
[dreh|drehe|stell|stelle|mach] {o} {a} [niedriger|herunter|runter|zurück]
[senke|verringere|reduziere] {o} {a}
{in} {d} {a} [niedriger|runter] [drehen|stellen]
{o} {a} [niedriger|runter] [drehen|stellen] [bitte|]
[kannst|könntest|würdest] du [bitte|] {o} {a} [niedriger|herunter|runter] [drehen|stellen]
[kannst|könntest] du {o} {a} [senken|verringern|reduzieren|herunterdrehen]
[drehen|stellen] Sie {o} {a} [niedriger|herunter|runter|zurück]
{n} {soll} {a} niedriger
{n} {a} niedriger
{o} {a} [herunterdrehen|senken]
[dreh|stell] {in} {d} {a} [niedriger|runter]
[ich möchte|ich will] {o} {a} [niedriger|runter] haben
du [kannst|sollst] {o} {a} [niedriger|runter] drehen
es ist Zeit {o} {a} [zu senken|niedriger zu drehen]
senken Sie {o} {a}
! {in} [kannst|könntest] du {d} {a} [niedriger|runter] [drehen|stellen]
! {in} [senke|verringere] {d} {a}
! [würdest du|könnten Sie] {o} {a} [reduzieren|herunterdrehen]
! [ich möchte|ich will] dass {n} {a} niedriger {ist}
! du sollst {o} {a} [senken|herunterdrehen]
! {in} [ich will|ich möchte] {d} {a} niedriger haben
""",
    "de set": """
[stell|stelle|setze|dreh|bring|mach] {o} auf {v}
{in} {d} auf {v} [stellen|setzen|drehen]
{o} auf {v} [stellen|setzen|drehen|bringen] [bitte|]
[kannst|könntest|würdest] du [bitte|] {o} auf {v} [stellen|setzen|drehen]
[können|könnten] Sie {o} auf {v} [stellen|bringen]
[stellen|setzen|drehen] Sie {o} auf {v}
{n} auf {v}
{n} {soll} auf {v} [sein|stehen]
auf {v} [stell|setze|dreh] {o}
{v} für {o}
[ich möchte|ich will|wir wollen] {o} auf {v} haben
[ich möchte|ich will] dass {n} auf {v} {ist}
[stell|dreh|mach] {in} {d} auf {v}
[sorge|sorg] dafür dass {n} auf {v} {ist}
du [kannst|sollst] {o} auf {v} [stellen|drehen]
es ist Zeit {o} auf {v} zu [stellen|bringen]
! {in} [kannst|könntest] du {d} auf {v} [stellen|bringen]
! {in} [setze|bring|stell] {d} auf {v}
! [sorge|sorg] dafür dass {in} {dn} auf {v} {ist}
! [ich möchte|ich will] {in} {d} auf {v} haben
! [würden|könnten] Sie {o} auf {v} [setzen|drehen]
! {in} soll {dn} auf {v} [sein|stehen]
! auf {v} [stellen|setzen] Sie {o}
""",
    "de open": """
[öffne|mach|mache|zieh|fahr] {o} [auf|hoch]
öffne {o}
{in} {d} [öffnen|hochziehen|aufmachen|hochfahren]
{o} [öffnen|hochziehen|aufmachen|hochfahren] [bitte|]
[kannst|könntest|würdest] du [bitte|] {o} [öffnen|hochziehen|aufmachen]
[können|könnten] Sie {o} [öffnen|hochfahren]
[ich möchte|ich will|wir wollen] {o} [offen|geöffnet] haben
[ich möchte|ich will] dass {n} [offen|geöffnet] {ist}
{n} {soll} [offen sein|aufgehen|geöffnet sein]
{n} [auf|hoch]
[öffnen|fahren|ziehen] Sie {o} hoch
öffnen Sie {o}
öffne {in} {d}
[sorge|sorg] dafür dass {n} offen {ist}
du [kannst|sollst] {o} [öffnen|aufmachen]
es ist Zeit {o} [zu öffnen|hochzuziehen]
! {in} [kannst|könntest] du {d} [öffnen|hochziehen]
! [sorge|sorg] dafür dass {in} {dn} [offen|geöffnet] {ist}
! [ich möchte|ich will] {in} {d} [öffnen|offen haben]
! [würden|würdest] [Sie|du] {in} {d} [hochfahren|aufmachen]
! {in} [zieh|fahr] {d} hoch
! du sollst {o} [hochziehen|hochfahren]
""",
    "de close": """
[schließe|mach|mache|zieh|fahr] {o} [zu|herunter|runter]
schließe {o}
{in} {d} [schließen|herunterziehen|zumachen|herunterfahren]
{o} [schließen|herunterziehen|zumachen|herunterfahren] [bitte|]
[kannst|könntest|würdest] du [bitte|] {o} [schließen|herunterziehen|zumachen]
[können|könnten] Sie {o} [schließen|herunterfahren]
[ich möchte|ich will|wir wollen] {o} [zu|geschlossen] haben
[ich möchte|ich will] dass {n} [zu|geschlossen] {ist}
{n} {soll} [zu sein|zugehen|geschlossen sein]
{n} [zu|herunter|runter]
[fahren|ziehen|machen] Sie {o} [herunter|zu]
schließen Sie {o}
schließe {in} {d}
[sorge|sorg] dafür dass {n} zu {ist}
du [kannst|sollst] {o} [schließen|zumachen]
es ist Zeit {o} [zu schließen|herunterzuziehen]
! {in} [kannst|könntest] du {d} [schließen|herunterziehen]
! [sorge|sorg] dafür dass {in} {dn} [zu|geschlossen] {ist}
! [ich möchte|ich will] {in} {d} [schließen|zu haben]
! [würden|würdest] [Sie|du] {in} {d} [herunterfahren|zumachen]
! {in} [zieh|fahr] {d} [herunter|runter]
! du sollst {o} [herunterziehen|herunterfahren]
""",
    "hi on": """
{o} [चालू|ऑन] [करो|कर दो|कर दीजिए|कीजिए|करना|कर]
{o} [जला दो|जलाओ|जला दीजिए|जलाना]
{in} {d} [चालू|ऑन] [करो|कर दो|कर दीजिए]
{in} {d} [जला दो|जलाओ]
क्या [आप|तुम] {o} [चालू|ऑन] कर सकते [हैं|हो]
[मुझे|हमें] {o} [चालू|ऑन] चाहिए
[मैं चाहता हूँ|मैं चाहती हूँ] कि {o} [चालू|ऑन] [हो|रहे]
{o} [चालू|ऑन]
{d} [चालू|ऑन] [करो|कर दो] {in}
[चालू|ऑन] [करो|कर दो|कर दीजिए] {o}
{o} [चालू|ऑन] [होनी|होना] चाहिए
{o} [शुरू|चालू] [करो|कर दो|कीजिए]
{o} को [चालू|ऑन|शुरू] [करो|कर दो|कर दीजिए]
{in} {d} [चालू|ऑन] चाहिए
{o} [चालू|ऑन] करने का समय है
{o} को [जला दो|जलाओ]
! {in} [मुझे|हमें] {d} [चालू|ऑन] चाहिए
! क्या [आप|तुम] {in} {d} [चालू|ऑन|शुरू] कर सकते [हैं|हो]
! [मैं चाहता हूँ|मैं चाहती हूँ] कि {in} {d} [चालू|ऑन] [हो|रहे]
! {in} {d} को [चालू|ऑन|शुरू] [करो|कर दीजिए]
! [जला दो|जलाओ] {o}
! {in} {d} [शुरू|चालू] [कीजिए|करना]
! {in} {d} [चालू|ऑन] करने का समय है
""",
    "hi off": """
{o} [बंद|ऑफ़] [करो|कर दो|कर दीजिए|कीजिए|करना|कर]
{o} [बुझा दो|बुझाओ|बुझा दीजिए|बुझाना]
{in} {d} [बंद|ऑफ़] [करो|कर दो|कर दीजिए]
{in} {d} [बुझा दो|बुझाओ]
क्या [आप|तुम] {o} [बंद|ऑफ़] कर सकते [हैं|हो]
[मुझे|हमें] {o} [बंद|ऑफ़] चाहिए
[मैं चाहता हूँ|मैं चाहती हूँ] कि {o} [बंद|ऑफ़] [हो|रहे]
{o} [बंद|ऑफ़]
{d} [बंद|ऑफ़] [करो|कर दो] {in}
[बंद|ऑफ़] [करो|कर दो|कर दीजिए] {o}
{o} [बंद|ऑफ़] [होनी|होना] चाहिए
{o} को [बंद|ऑफ़] [करो|कर दो|कर दीजिए]
{in} {d} [बंद|ऑफ़] चाहिए
{o} [बंद|ऑफ़] करने का समय है
{o} को [बुझा दो|बुझाओ]
! {in} [मुझे|हमें] {d} [बंद|ऑफ़] चाहिए
! क्या [आप|तुम] {in} {d} [बंद|ऑफ़] कर सकते [हैं|हो]
! [मैं चाहता हूँ|मैं चाहती हूँ] कि {in} {d} [बंद|ऑफ़] [हो|रहे]
! {in} {d} को [बंद|ऑफ़] [करो|कर दीजिए]
! [बुझा दो|बुझाओ] {o}
! {in} {d} [बंद|ऑफ़] [कीजिए|करना]
! {in} {d} [बंद|ऑफ़] करने का समय है
""",
    "hi up": """
{o} {a} [बढ़ाओ|बढ़ा दो|बढ़ा दीजिए|बढ़ाइए|बढ़ाना]
{o} {a} [तेज़|ऊपर] [करो|कर दो|कर दीजिए|कीजिए]
{in} {d} {a} [बढ़ाओ|बढ़ा दो]
{in} {d} {a} तेज़ [करो|कर दो]
क्या [आप|तुम] {o} {a} बढ़ा सकते [हैं|हो]
क्या [आप|तुम] {o} {a} तेज़ कर सकते [हैं|हो]
{a} [बढ़ाओ|बढ़ा दो] {o}
{o} को {a} [बढ़ाओ|बढ़ा दो|बढ़ा दीजिए]
{o} को {a} तेज़ [करो|कर दो]
[मुझे|हमें] {o} {a} तेज़ चाहिए
[मैं चाहता हूँ|मैं चाहती हूँ] कि {o} {a} तेज़ हो
{a} तेज़ [करो|कर दो] {o}
{o} {a} बढ़ाने का समय है
! {in} [मुझे|हमें] {d} {a} तेज़ चाहिए
! क्या [आप|तुम] {in} {d} {a} बढ़ा सकते [हैं|हो]
! {in} {d} को {a} [बढ़ाओ|बढ़ा दो|बढ़ाइए]
! [मैं चाहता हूँ|मैं चाहती हूँ] कि {in} {d} {a} तेज़ हो
! {in} {d} {a} [बढ़ा दीजिए|बढ़ाना|बढ़ाइए]
""",
    "hi down": """
{o} {a} [घटाओ|घटा दो|घटा दीजिए|घटाइए|घटाना]
{o} {a} [कम|धीमा|धीमी] [करो|कर दो|कर दीजिए|कीजिए]
{in} {d} {a} [घटाओ|घटा दो]
{in} {d} {a} कम [करो|कर दो]
क्या [आप|तुम] {o} {a} घटा सकते [हैं|हो]
क्या [आप|तुम] {o} {a} कम कर सकते [हैं|हो]
{a} [घटाओ|घटा दो] {o}
{o} को {a} [घटाओ|घटा दो|घटा दीजिए]
{o} को {a} कम [करो|कर दो]
[मुझे|हमें] {o} {a} कम चाहिए
[मैं चाहता हूँ|मैं चाहती हूँ] कि {o} {a} कम हो
{a} कम [करो|कर दो] {o}
{o} {a} घटाने का समय है
! {in} [मुझे|हमें] {d} {a} कम चाहिए
! क्या [आप|तुम] {in} {d} {a} घटा सकते [हैं|हो]
! {in} {d} को {a} [घटाओ|घटा दो|घटाइए]
! [मैं चाहता हूँ|मैं चाहती हूँ] कि {in} {d} {a} कम हो
! {in} {d} {a} [घटा दीजिए|घटाना|घटाइए]
""",
    "hi set": """
{o} {v} पर [करो|कर दो|कर दीजिए|रखो|रख दो|रखिए|सेट करो]
{o} को {v} पर [करो|कर दो|रखो|सेट करो|सेट कर दो]
{in} {d} {v} पर [करो|कर दो|रखो|सेट करो]
क्या [आप|तुम] {o} {v} पर [कर|रख] सकते [हैं|हो]
{o} {v}
{o} {v} पर
{v} पर [करो|कर दो|रखो] {o}
[मुझे|हमें] {o} {v} पर चाहिए
[मैं चाहता हूँ|मैं चाहती हूँ] कि {o} {v} पर [हो|रहे]
{o} {v} पर होना चाहिए
{o} {v} पर [ले आओ|लाओ|लाइए]
{o} {v} तक [करो|कर दो]
{o} {v} पर करने का समय है
! {in} [मुझे|हमें] {d} {v} पर चाहिए
! क्या [आप|तुम] {in} {d} {v} पर [कर|रख|सेट कर] सकते [हैं|हो]
! {in} {d} को {v} पर [रखो|रखिए|सेट कर दो]
! [मैं चाहता हूँ|मैं चाहती हूँ] कि {in} {d} {v} पर [हो|रहे]
! {in} {d} {v} [पर लाओ|पर लाइए|तक कर दो]
! {v} पर [रख दो|सेट करो] {o}
""",
    "hi open": """
{o} [खोलो|खोल दो|खोल दीजिए|खोलिए|खोलना]
{in} {d} [खोलो|खोल दो|खोलिए]
{o} ऊपर [करो|कर दो|कर दीजिए]
क्या [आप|तुम] {o} खोल सकते [हैं|हो]
[मुझे|हमें] {o} [खुले|खुला] चाहिए
[मैं चाहता हूँ|मैं चाहती हूँ] कि {o} [खुले|खुला] [हों|रहे]
[खोलो|खोल दो] {o}
{o} को [खोलो|खोल दो]
{o} को ऊपर [करो|कर दो]
{in} {d} ऊपर [करो|कर दो]
{o} खोलने का समय है
{d} खोल दो {in}
! {in} [मुझे|हमें] {d} [खुले|खुला] चाहिए
! क्या [आप|तुम] {in} {d} [खोल|ऊपर कर] सकते [हैं|हो]
! {in} {d} को [खोलो|खोल दो|खोल दीजिए]
! [मैं चाहता हूँ|मैं चाहती हूँ] कि {in} {d} [खुले|खुला] [हों|रहे]
! {in} {d} [खोलना|खोल दीजिए]
! [खोलिए|खोल दीजिए] {o}
""",
    "hi close": """
{o} बंद [करो|कर दो|कर दीजिए|कीजिए|करना]
{in} {d} बंद [करो|कर दो|कीजिए]
{o} नीचे [करो|कर दो|कर दीजिए]
{o} [गिराओ|गिरा दो|गिरा दीजिए]
क्या [आप|तुम] {o} बंद कर सकते [हैं|हो]
[मुझे|हमें] {o} बंद चाहिए
[मैं चाहता हूँ|मैं चाहती हूँ] कि {o} बंद [हों|रहें]
बंद [करो|कर दो] {o}
{o} को [बंद करो|बंद कर दो|गिरा दो]
{o} को नीचे [करो|कर दो]
{in} {d} नीचे [करो|कर दो]
{o} बंद करने का समय है
{d} बंद कर दो {in}
! {in} [मुझे|हमें] {d} बंद चाहिए
! क्या [आप|तुम] {in} {d} [बंद|नीचे] कर सकते [हैं|हो]
! {in} {d} को [बंद करो|नीचे कर दो|गिरा दो]
! [मैं चाहता हूँ|मैं चाहती हूँ] कि {in} {d} बंद [हों|रहें]
! {in} {d} [गिराओ|गिरा दीजिए]
! [गिरा दो|गिराओ] {o}
""",
}

# Wordings of one device.
SPECIAL = {
    "en light on": "[light up|illuminate] [the|] {room}\nlet there be light {in}\n! could you [light up|illuminate] the {room}\n! it is time to [light up|illuminate] the {room}",
    "en light up": "make it {a} brighter {in}\n{in} make it {a} brighter\nbrighten {o} {a}\nbrighten the {room} {a}\nit is too dark {in}\nmake {o} {a} brighter\n"
                   "{a} more light {in}\n! could you make it {a} brighter {in}\n! {in} it is too dark\n! can you brighten {o} {a}\n! I want it {a} brighter {in}",
    "en light down": "make it {a} darker {in}\n{in} make it {a} darker\ndim {o} {a}\ndim the {room} {a}\nit is too bright {in}\nmake {o} {a} darker\n{a} less light {in}\n"
                     "! could you make it {a} darker {in}\n! {in} it is too bright\n! can you dim {o} {a}\n! I want it {a} darker {in}",
    "en heating up": "make it {a} warmer {in}\n{in} make it {a} warmer\n[heat|warm] the {room} {a}\nit is too cold {in}\nI am [cold|freezing] {in}\nmake {o} {a} warmer\n"
                     "! could you make it {a} warmer {in}\n! {in} it is too cold\n! {in} I am [cold|freezing]\n! I want it {a} warmer {in}",
    "en heating down": "make it {a} colder {in}\n{in} make it {a} [colder|cooler]\ncool the {room} {a}\nit is too [warm|hot] {in}\nI am too [warm|hot] {in}\n"
                       "make {o} {a} cooler\n! could you make it {a} [colder|cooler] {in}\n! {in} it is too [warm|hot]\n! I want it {a} cooler {in}",
    "en heating set": "[heat|warm] the {room} to {v}\nmake it {v} {in}\nI want it to be {v} {in}\n{v} {in}\nI want {v} {in}\n! {in} make it {v}\n! could you [heat|warm] the {room} to {v}\n! {in} I want {v}",
    "en light set": "dim {o} to {v}\nbrighten {o} to {v}\n! could you dim {o} to {v}\n! {in} dim {d} to {v}",
    "en blinds set": "[open|close] {o} to {v}\n[lower|raise] {o} to {v}\n! could you [open|close] {o} to {v}\n! {in} [lower|raise] {d} to {v}",
    "de light on": "[beleuchte|erleuchte] {o}\nmach Licht {in}\nLicht an {in}\nes werde Licht {in}\n! {in} mach Licht\n! kannst du {in} Licht machen",
    "de light up": "mach es {in} {a} heller\nmach es {a} heller {in}\n{in} ist es zu dunkel\n{o} {a} heller [machen|stellen]\nmach {o} {a} heller\n{a} mehr Licht {in}\n"
                   "es ist zu dunkel {in}\n! {in} mach es {a} heller\n! kannst du es {in} {a} heller machen\n! {in} will ich es {a} heller\n! {in} {a} mehr Licht",
    "de light down": "mach es {in} {a} dunkler\nmach es {a} dunkler {in}\n{in} ist es zu hell\n{o} {a} dunkler [machen|stellen]\nmach {o} {a} dunkler\n[dimme|dimm] {o} {a}\n"
                     "{o} {a} dimmen\nes ist zu hell {in}\n{a} weniger Licht {in}\n! {in} mach es {a} dunkler\n! kannst du es {in} {a} dunkler machen\n! kannst du {o} {a} dimmen\n! {in} dimme {d} {a}",
    "de heating up": "mach es {in} {a} wärmer\nmach es {a} wärmer {in}\n{in} ist es zu kalt\nmir ist kalt {in}\nich friere {in}\nheize {in} {a} mehr\n{in} {a} wärmer\nes ist zu kalt {in}\n"
                     "! {in} mach es {a} wärmer\n! kannst du es {in} {a} wärmer machen\n! {in} ist mir kalt\n! {in} friere ich",
    "de heating down": "mach es {in} {a} kälter\nmach es {a} kälter {in}\n{in} ist es zu [warm|heiß]\nmir ist zu [warm|heiß] {in}\nheize {in} {a} weniger\n{in} {a} kälter\n"
                       "es ist zu [warm|heiß] {in}\n! {in} mach es {a} kälter\n! kannst du es {in} {a} kälter machen\n! {in} ist mir zu [warm|heiß]",
    "de heating set": "heize {in} auf {v}\nmach es {in} {v} warm\n{in} {soll1} es {v} haben\n{v} {in}\nich will {v} {in}\n! {in} mach es {v} warm\n! kannst du {in} auf {v} heizen\n! {in} will ich {v}",
    "de light set": "[dimme|dimm] {o} auf {v}\n{o} auf {v} dimmen\n! kannst du {o} auf {v} dimmen\n! {in} dimme {d} auf {v}",
    "de blinds set": "[öffne|schließe] {o} auf {v}\nfahr {o} auf {v}\n! kannst du {o} auf {v} [öffnen|schließen]\n! {in} fahr {d} auf {v}",
    "hi light on": "{in} [रोशनी|उजाला] [करो|कर दो]\n[रोशनी|उजाला] करो {in}\n! क्या आप {in} [रोशनी|उजाला] कर सकते हैं\n! {in} रोशनी [कीजिए|कर दीजिए]",
    "hi light up": "{in} बहुत [अंधेरा|अँधेरा] है\n{in} {a} रोशनी [बढ़ाओ|बढ़ा दो]\n{in} रोशनी {a} [बढ़ाओ|बढ़ा दो]\n{in} {a} ज़्यादा रोशनी [करो|चाहिए]\n"
                   "! क्या आप {in} रोशनी {a} बढ़ा सकते हैं\n! {in} मुझे {a} ज़्यादा रोशनी चाहिए\n! बहुत [अंधेरा|अँधेरा] है {in}",
    "hi light down": "{in} बहुत [रोशनी|उजाला] है\n{in} {a} रोशनी [घटाओ|कम करो]\n{in} रोशनी {a} [घटाओ|कम कर दो]\n{in} {a} कम रोशनी [करो|चाहिए]\n"
                     "! क्या आप {in} रोशनी {a} [घटा|कम कर] सकते हैं\n! {in} मुझे {a} कम रोशनी चाहिए\n! बहुत [रोशनी|उजाला] है {in}",
    "hi heating up": "{in} बहुत [ठंड|सर्दी] है\n{in} मुझे [ठंड|सर्दी] लग रही है\n{in} {a} गरम [करो|कर दो]\n{in} तापमान {a} [बढ़ाओ|बढ़ा दो]\n{room} को {a} गरम करो\n"
                     "! क्या आप {in} तापमान {a} बढ़ा सकते हैं\n! बहुत [ठंड|सर्दी] है {in}\n! मुझे {in} [ठंड|सर्दी] लग रही है",
    "hi heating down": "{in} बहुत गरमी है\n{in} मुझे गरमी लग रही है\n{in} {a} ठंडा [करो|कर दो]\n{in} तापमान {a} [घटाओ|कम करो]\n{room} को {a} ठंडा करो\n"
                       "! क्या आप {in} तापमान {a} [घटा|कम कर] सकते हैं\n! बहुत गरमी है {in}\n! मुझे {in} गरमी लग रही है",
    "hi heating set": "{in} तापमान {v} [करो|कर दो|रखो]\n{room} का तापमान {v} [करो|रखो]\n{in} {v} तापमान चाहिए\n{in} {v}\n{room} को {v} तक गरम करो\n"
                      "! क्या आप {in} तापमान {v} [कर|रख] सकते हैं\n! मुझे {in} {v} तापमान चाहिए\n! {room} का तापमान {v} पर [रखो|सेट करो]",
}

# Sentences about devices that are not commands. {x}: something else with a room; {p}: a device in another place.
REFUSED = {
    "en": """
[don't|do not|please don't|never] [turn|switch|put] {o} [on|off|up|down]
[don't|do not|please don't|never] [turn|switch] [on|off] {o}
[don't|do not|never] [dim|raise|lower|open|close|touch|change] {o}
{o} [is|are] [on|off|nice|too old|broken|new|beautiful|expensive]
[is|are] {o} [on|off|open|closed|broken|new]
[who|when did you|why did you] [turned|turn|switched|switch] {o} [on|off]
[I like|I love|I hate|I bought|I see|I know|we cleaned] {o}
[what|how much] does {o} cost
[yesterday|last week] {o} [was|were] [on|off|broken]
[turn|switch|put] [on|off|up|down] {x}
[turn|switch|put] {x} [on|off|up|down]
[open|close|start|stop|raise|lower|dim|set|activate|lower] {x}
[can|could|would] you [turn|switch] {x} [on|off]
[can|could|would] you [open|close|start|stop|raise] {x}
set {x} to {v}
{x} [on|off|up|down] [please|]
[I want|I would like] {x} [on|off|open|closed|louder]
{in} [turn|switch|put] {xd} [on|off|up]
[turn|switch|put] [on|off|up|down] {p}
[turn|switch] {p} [on|off]
[open|close|raise|lower|dim] {p}
set {p} to {v}
[can|could] you [turn|switch|put] {p} [on|off|up|down]
[turn|switch] [on|off] {d}
[turn|switch|put] {d} [on|off|up|down]
{d} [on|off] [please|]
[raise|lower|dim|open|close] {d}
set {d} to {v}
[turn|switch] it [on|off]
[what|how|where|who|why] is [the|my|your] {xn}
[I am|he is|she is|we are|they are] {in}
[there is|I found|I lost|I forgot] a {xn} {in}
[the|my] {xn} is {in}
[play|read|tell me|show me|find|buy|call|write] [a|the|my] {xn}
[what time is it|how are you|good morning|good night|thank you|what is the weather|tell me a joke|what day is it today]
[who are you|where are you|I am tired|I am hungry|see you|never mind|stop|yes|no|hello|help]
[the weather is nice|it is raining|I have to go|what is for dinner|we had a good day|sing a song|the dog is {in}]
how [warm|cold|bright|dark|big] is it {in}
[clean|paint|sell|leave|enter|find] the {room}
[the|] {room}
let us [eat|play|sleep|sit] {in}
[if|when] {o} [is|are] [on|off] I [sleep|read|am happy]
[he|she|somebody] [turned|switched] {o} [on|off]
! [never|please don't] [open|close|dim|change] {d} {in}
! [you should not|I did not] [turn|switch] {o} [on|off]
! [could|would] you [raise|lower|start|stop] {x}
! {in} [open|close|start|stop] {xd}
! [did|does] [he|she|somebody] like {o}
! [I found|I lost] a {xn} {in} [yesterday|last week]
! what is [nice|new|broken] {in}
! [we are|they are] {in} and [sing|eat|play]
! [I want|I would like] {p} [on|off]
! {p} [on|off|to {v}]
! [dim|raise|lower] {d} please
! [tell me|show me] how [warm|cold|big] the {room} is
! [why|when] [is|are] {o} [on|off]
! I am [tired|hungry|happy] and it is raining
! [good morning|good night|hello] how are you
! [where|who] is my {xn} today
! we [bought|cleaned] the {room} last week
! [is|are] {o} [nice|expensive|too old]
""",
    "de": """
[schalte|mach|stell|dreh] {o} nicht [an|aus|höher|herunter]
[schalte|mach] {o} [nie|niemals|auf keinen Fall] [an|aus]
[öffne|schließe|senke|dimme|ändere] {o} nicht
[bitte|] {o} nicht [einschalten|ausschalten|öffnen|schließen]
{n} {ist} [an|aus|schön|zu alt|kaputt|neu|teuer]
{ist} {n} [an|aus|offen|zu|kaputt|neu]
[wer|wann|warum] hat {o} [eingeschaltet|ausgeschaltet|angemacht|ausgemacht]
[ich mag|ich liebe|ich hasse|ich sehe|ich kenne|wir putzen] {o}
[was|wie viel] kostet {n}
[gestern|letzte Woche] {war} {n} [an|aus|kaputt]
[schalte|mach|stell|dreh] {x} [an|aus|ein|höher|herunter]
[öffne|schließe|starte|stoppe|senke|erhöhe|dimme] {x}
[kannst|könntest|würdest] du {x} [einschalten|ausschalten|anmachen|ausmachen|öffnen|schließen]
[stell|stelle|setze] {x} auf {v}
{x} [an|aus|einschalten|ausschalten|öffnen]
[ich möchte|ich will] {x} [haben|hören|sehen|kaufen]
{in} {xd} [einschalten|ausschalten]
[schalte|mach|dreh] {p} [an|aus|hoch|runter]
[öffne|schließe|dimme|erhöhe] {p}
[stell|stelle] {p} auf {v}
[kannst|könntest] du {p} [einschalten|ausschalten|öffnen|schließen]
[schalte|mach|dreh|stell] {d} [an|aus|hoch|runter]
{d} [einschalten|ausschalten] [bitte|]
[öffne|schließe|dimme|erhöhe|senke] {d}
stelle {d} auf {v}
[schalte|mach] es [an|aus]
[was|wo|wie|wer] ist [das|der|die|mein] {xn}
[ich bin|er ist|sie ist|wir sind] {in}
[ich habe|er hat|wir haben] {in} [geschlafen|gegessen|gespielt|gearbeitet]
[da|hier] ist {xn} {in}
[spiel|lies|zeig mir|such|kauf|ruf] [ein|das|mein] {xn}
[wie spät ist es|wie geht es dir|guten Morgen|gute Nacht|danke|wie wird das Wetter|erzähl einen Witz|welcher Tag ist heute]
[wer bist du|wo bist du|ich bin müde|ich habe Hunger|bis bald|egal|stopp|ja|nein|hallo|Hilfe]
[das Wetter ist schön|es regnet|ich muss gehen|was gibt es zu essen|sing ein Lied|der Hund ist {in}]
wie [warm|kalt|hell|dunkel|groß] ist es {in}
[putze|streiche|verkaufe|suche] [das|den|die] {xn} {in}
{in}
lass uns {in} [essen|spielen|schlafen|sitzen]
wenn {n} [an|aus] {ist} [schlafe|lese] ich
[er|sie|jemand] hat {o} [eingeschaltet|ausgeschaltet]
! [auf keinen Fall|niemals] {o} [öffnen|schließen|dimmen|einschalten]
! [du sollst|ich will] {o} nicht [einschalten|ausschalten]
! [könntest|würdest] du {x} [starten|stoppen|hochdrehen]
! {in} {xd} [öffnen|schließen|starten]
! [mag|liebt|kennt] [er|sie|jemand] {o}
! [ich habe|wir haben] gestern {in} [gegessen|gespielt]
! was ist {in} [schön|neu|kaputt]
! [er ist|wir sind] {in} und [singen|essen|spielen]
! [ich möchte|ich will] {p} [einschalten|ausschalten]
! {p} [an|aus|auf {v}]
! [dimme|senke] {d} bitte
! [zeig mir|erzähl] wie [warm|groß] es {in} ist
! [warum|wann] {ist} {n} [an|aus]
! ich bin müde und es regnet
! [guten Morgen|gute Nacht|hallo] wie geht es dir
! [wo|wer] ist mein {xn} heute
! wir [putzen|streichen] letzte Woche
! {ist} {n} [schön|teuer|zu alt]
""",
    "hi": """
{o} [चालू|बंद|ऑन|ऑफ़] [मत|न] [करो|करना|कीजिए]
{o} [मत|न] [जलाओ|बुझाओ|खोलो|बढ़ाओ|घटाओ|छुओ]
{o} को कभी [मत|न] [जलाओ|बुझाओ|खोलो|बदलो]
{o} [चालू|बंद|सुंदर|पुरानी|पुराना|खराब|नया|महँगा] [है|हैं]
क्या {o} [चालू|बंद|खुले|खराब|नया] [है|हैं]
[किसने|कब|क्यों] {o} [चालू किया|बंद किया|जलाई|बुझाई|खोले]
[मुझे|हमें] {o} [पसंद है|दिखता है|पसंद नहीं]
{o} [कितने का है|की कीमत क्या है]
[कल|पिछले हफ़्ते] {o} [चालू|बंद|खराब] [था|थी|थे]
{x} [चालू|बंद|ऑन|ऑफ़] [करो|कर दो|कर दीजिए]
{x} [खोलो|खोल दो|बजाओ|बढ़ाओ|घटाओ|जलाओ]
क्या [आप|तुम] {x} [चालू|बंद] कर सकते [हैं|हो]
{x} {v} पर [करो|रखो]
{x} [चालू|बंद]
[मुझे|हमें] {x} [चाहिए|सुनना है|देखना है]
{in} {xd} [चालू|बंद] [करो|कर दो]
{p} [चालू|बंद|ऑन] [करो|कर दो]
{p} [खोलो|बढ़ाओ|घटाओ|जलाओ|बुझाओ]
{p} {v} पर [करो|रखो]
क्या [आप|तुम] {p} [चालू|बंद] कर सकते [हैं|हो]
{d} [चालू|बंद|ऑन|ऑफ़] [करो|कर दो]
{d} [खोलो|जलाओ|बुझाओ|बढ़ाओ|घटाओ]
{d} {v} पर [करो|रखो]
{d} [चालू|बंद]
इसे [चालू|बंद] [करो|कर दो]
[मेरा|मेरी|आपका] {xn} [कहाँ|कैसा|क्या] है
[मैं|वह|हम] {in} [हूँ|है|हैं]
[मैंने|उसने|हमने] {in} [खाना खाया|काम किया|खेला]
{in} [एक|मेरा] {xn} है
[एक|मेरा|मेरी] {xn} [दिखाओ|ढूँढो|खरीदो|सुनाओ]
[समय क्या हुआ है|आप कैसे हैं|सुप्रभात|शुभ रात्रि|धन्यवाद|मौसम कैसा है|एक चुटकुला सुनाओ|आज कौन सा दिन है]
[तुम कौन हो|तुम कहाँ हो|मैं थक गया हूँ|मुझे भूख लगी है|फिर मिलेंगे|रहने दो|रुको|हाँ|नहीं|नमस्ते|मदद]
[मौसम अच्छा है|बारिश हो रही है|मुझे जाना है|खाने में क्या है|एक गीत गाओ|कुत्ता {in} है]
{in} कितनी [गरमी|ठंड|रोशनी] है
{in} [सफ़ाई|पुताई] [करो|कर दो]
{in}
चलो {in} [खाते हैं|खेलते हैं|सोते हैं|बैठते हैं]
जब {o} [चालू|बंद] होता है तब मैं [सोता हूँ|पढ़ता हूँ]
[उसने|किसी ने] {o} [चालू|बंद] किया
! {in} {d} [चालू|बंद] [मत|न] [करो|करना]
! {o} कभी [मत|न] [बढ़ाओ|घटाओ|खोलो]
! क्या [आप|तुम] {x} [खोल|बढ़ा] सकते [हैं|हो]
! {in} {xd} [खोलो|बजाओ|बढ़ाओ]
! क्या [उसने|किसी ने] {o} [चालू|बंद] किया
! [मैंने|हमने] कल {in} खाना खाया
! {in} क्या [सुंदर|नया|खराब] है
! हम {in} हैं और गीत गाते हैं
! [मुझे|हमें] {p} [चालू|बंद] चाहिए
! {p} [चालू|बंद|{v}]
! कृपया {d} [बढ़ाओ|घटाओ|जलाओ]
! मुझे बताओ {in} कितनी [गरमी|ठंड] है
! {o} [कब|क्यों] [चालू|बंद] [है|हैं]
! मैं थक गया हूँ और बारिश हो रही है
! [सुप्रभात|शुभ रात्रि|नमस्ते] आप कैसे हैं
! [मेरा|मेरी] {xn} आज कहाँ है
! हमने पिछले हफ़्ते सफ़ाई की
! क्या {o} [सुंदर|महँगा|पुराना] [है|हैं]
""",
}

FRAMES = {key: text.strip().splitlines() for key, text in (FRAMES | SPECIAL | {f"{lang} refused": text for lang, text in REFUSED.items()}).items()}
