"""What the scripted caller says: everyday questions of 1 to 4 seconds, no two alike.

The short ones ask for an answer of a sentence; the long ones for one that leaves time to talk over it.
"""

QUESTIONS = (
    "What is the capital of France?",
    "How many days are there in a week?",
    "Can you tell me a fun fact about whales?",
    "What should I cook for dinner tonight?",
    "Who wrote the play Romeo and Juliet?",
    "I feel a bit tired today, any advice?",
    "What is the opposite of cold?",
    "How do you say good morning in Spanish?",
    "Which animal is the largest on land?",
    "Why is the sky blue during the day?",
    "What do bees make from flowers?",
    "Could you recommend a good book for the weekend?",
    "How long should I boil an egg?",
    "What color do you get when you mix blue and yellow?",
    "Where do penguins live?",
    "Is it better to run in the morning or in the evening?",
    "What is a good name for a small brown dog?",
    "How can I fall asleep faster?",
    "What season comes after winter?",
    "Please give me one idea for a birthday present.",
    "What instrument has black and white keys?",
    "How many legs does a spider have?",
    "What is the best way to learn a language?",
    "Do cats really land on their feet?",
    "What can I drink instead of coffee?",
    "Which planet is closest to the sun?",
    "What is the name of the longest river in Africa?",
    "How do I remove a coffee stain from my shirt?",
    "What does a gardener do in spring?",
    "Tell me something nice.",
    "Should I take an umbrella with me in autumn?",
    "What is bread made of?",
    "How do airplanes stay in the air?",
    "What game can two people play with a deck of cards?",
)

LONG_QUESTIONS = (
    "Please tell me a long story about a sailor and the sea.",
    "Explain in many sentences how a car engine works.",
    "Describe a whole day in the life of a farmer.",
    "Tell me everything you know about the moon.",
    "Give me a long list of things to see in London, with reasons.",
    "Explain step by step how to bake bread at home.",
)

BARGES = (
    "Stop, please. What time is it in London?",
    "Hold on, I have another question.",
    "Wait, can we talk about music instead?",
    "Sorry, that is enough for now.",
    "No, let me ask you something else.",
    "Okay, please stop talking now.",
)
