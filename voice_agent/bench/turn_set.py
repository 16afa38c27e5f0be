"""The labelled set: what is said or sounded, by which voice, and what a good listener does about it.

A number in brackets is a pause of so many ms inside what is said; the turn's true end is the end of the item. Sounds
are made from these lines when they are needed (`labelled`). Everything here is written for this bench.
"""

QUESTIONS = (
    "Tell me in four sentences how bread is baked.",
    "Describe in four sentences what a farmer does all day.",
    "Explain in four sentences how a car engine works.",
    "Tell me in four sentences about the moon.",
    "Describe in four sentences what one can see in London.",
    "Tell me in four sentences about a sailor and the sea.",
)

BARGES = (
    "Stop, please.",
    "Stop.",
    "Wait, I have another question.",
    "Wait a moment.",
    "No, that's not what I meant.",
    "No.",
    "Hold on a second.",
    "Hang on.",
    "What time is it in London?",
    "Can you say that again?",
    "How much does that cost?",
    "Sorry, I did not catch that.",
    "That's enough, thank you.",
    "Never mind.",
    "Actually, I wanted to ask about dogs.",
    "Let's talk about something else.",
    "Please be quiet.",
    "Why is that?",
    "I don't understand.",
    "Speak more slowly, please.",
    "Excuse me, who told you that?",
    "Okay, but what about the weather?",
    "Yes, and what comes after that?",
    "You can stop now.",
    "Listen, I need your help.",
    "Skip that part.",
    "Cancel it.",
    "One more thing, what is your name?",
)

BACKCHANNELS = (
    "Mm-hmm.",
    "Uh-huh.",
    "Yeah.",
    "Okay.",
    "Right.",
    "I see.",
    "Really?",
    "Mm.",
    "Yes.",
    "Sure.",
    "Oh.",
    "Wow.",
    "Yeah, yeah.",
    "Okay, okay.",
    "Ah.",
    "Of course.",
    "Got it.",
    "Oh, nice.",
    "Great.",
    "Hmm.",
    "Cool.",
    "Oh, I see.",
    "Yeah, right.",
    "Interesting.",
)

SIDE_TALK = (  # level against the user's own voice in dB, what somebody else in the room says
    (-12, "Did you put the kettle on?"),
    (-12, "I will be home around seven tonight."),
    (-14, "The bus was late again this morning."),
    (-14, "Have you seen my keys anywhere?"),
    (-15, "Dinner is almost ready, come downstairs."),
    (-15, "They said it would rain on Sunday."),
    (-16, "And then she told him the whole story."),
    (-16, "Could you close the window over there?"),
    (-18, "We should call your mother later."),
    (-18, "I think the printer is broken."),
    (-18, "Leave it on the table, thanks."),
)

COUGHS = (  # recipe, length in ms, level of the loudest part in dBFS
    ("cough", 220, -14),
    ("cough", 300, -18),
    ("double cough", 520, -14),
    ("double cough", 640, -18),
    ("throat", 380, -20),
    ("throat", 520, -18),
    ("breath", 600, -30),
    ("breath", 900, -26),
    ("sniff", 260, -24),
    ("click", 40, -12),
    ("clicks", 500, -18),
    ("tongue", 90, -14),
    ("knock", 180, -10),
    ("burst", 250, -16),
    ("sneeze", 450, -12),
)

PAUSES = (
    # in the middle of a sentence
    "I would like to know [500] how far it is to the station.",
    "Can you tell me [700] what the weather will be tomorrow?",
    "What I wanted to ask is [900] whether you know a good recipe.",
    "Could you please [400] set a timer for ten minutes?",
    "I am looking for a restaurant [600] that is open on Sunday.",
    "Tomorrow I have to go to the dentist and [800] then I want to buy some flowers.",
    "My sister and I [350] are planning a trip to Spain.",
    "I think that [1000] we should leave a little earlier.",
    "If it rains tomorrow, [800] should I still take the bike?",
    "Do you know, um, [900] the name of that actor?",
    "Remind me to call [1200] the plumber on Friday.",
    "How long does it take to [700] drive from Paris to London?",
    "Please write down that the [500] meeting was moved to Monday.",
    "I bought apples, [600] pears, [600] and a loaf of bread.",
    "The thing is, [1000] I do not really like coffee.",
    "Well, [700] what would you recommend?",
    "So, [300] what is the capital of Peru?",
    "I feel a bit tired today, [500] do you have any advice?",
    # numbers
    "My number is four one five, [900] two six seven, [900] one one zero nine.",
    "My phone number is zero three zero, [700] five five one, [700] eight four two six.",
    "You can reach me at five five five [600] zero one nine nine.",
    "The code is seven three [800] nine one.",
    "My account number is one one eight, [1000] four four six, [1000] nine zero two.",
    "My zip code is nine four [500] one zero seven.",
    "The order number is three five two [900] eight eight one four.",
    "It's two four six, [600] eight one zero, [600] one two one four.",
    # e-mail addresses
    "My email is john [500] dot miller [600] at example dot com.",
    "You can write to anna [700] at example dot org.",
    "My address is info at [900] green garden dot com.",
    "It's peter underscore [600] smith at example dot net.",
    # spellings
    "My name is spelled S, M, [600] I, T, H.",
    "That is spelled K, A, [800] T, E.",
    "My last name is B, R, [500] O, W, [500] N.",
    "It is spelled J, O, H, [1000] A, N.",
    # dates and addresses
    "My birthday is the third of [700] October.",
    "I live at twenty four [600] Baker Street.",
    "The flight leaves on Monday at [500] half past nine.",
    "Book a table for two [400] at seven in the evening.",
)

NOISES = (  # recipe; the question is heard 10 dB above it
    ("fan", "What is the capital of France?"),
    ("street", "How many days are there in a week?"),
    ("pink", "Who wrote the play Romeo and Juliet?"),
    ("hum", "What season comes after winter?"),
    ("fan", "Which planet is closest to the sun?"),
    ("street", "Where do penguins live?"),
    ("rain", "What do bees make from flowers?"),
    ("pink", "How many legs does a spider have?"),
)

ECHOES = (  # gain in dB, delay in ms, what the user says into it (nothing: the echo alone)
    (-15, 80, ""),
    (-15, 150, ""),
    (-15, 250, ""),
    (-15, 300, ""),
    (-18, 100, ""),
    (-18, 200, ""),
    (-20, 120, ""),
    (-24, 60, ""),
    (-15, 120, "Stop, please."),
    (-15, 200, "Wait, I have another question."),
)
