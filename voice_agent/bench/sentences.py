"""What the speech bench asks to be spoken: everyday sentences of 8 to 20 words, written for it, no two alike.

The order is drawn anew for each seed; every sentence comes once before any comes twice.
"""

import random
from collections.abc import Iterator

SENTENCES = (
    "The last train to the harbour leaves twenty minutes after the theatre closes.",
    "Please put the blue folder back on the shelf next to the window.",
    "My grandmother still bakes her bread in the old stone oven behind the barn.",
    "We could walk along the river first and then have lunch at the mill.",
    "Nobody in the office remembered where the spare keys had been hidden last winter.",
    "If the rain stops before noon, we will hang the laundry out in the garden.",
    "The museum keeps a small collection of clocks that all show different times.",
    "She taught herself to play the cello by listening to records every evening.",
    "There are three ways to fold this map, and only one of them works.",
    "A thin layer of frost covered the strawberries when we woke up this morning.",
    "Can you hear how the floor creaks whenever somebody walks past the kitchen door?",
    "The bakery on the corner sells out of cinnamon rolls before nine every day.",
    "I would rather take the slow road through the hills than sit in traffic.",
    "Their dog waits at the gate each afternoon until the school bus comes around.",
    "Your package was handed to a neighbour because nobody answered the bell yesterday.",
    "He measured the plank twice, cut it once, and still came up short.",
    "The captain asked everyone to stay seated until the boat was tied to the pier.",
    "It takes about an hour to get from the airport to the old town by tram.",
    "Most of the lemons on this tree will be ripe by the end of the month.",
    "The children built a raft out of barrels and floated it across the pond.",
    "When the power went out, we lit candles and told stories until midnight.",
    "Our neighbour repairs old radios and gives them away to anyone who asks nicely.",
    "The recipe calls for two onions, a little butter, and a lot of patience.",
    "Before you paint the wall, fill the small holes and let them dry overnight.",
    "An owl has moved into the tower, and the pigeons are not happy about it.",
    "The doctor said that a short walk after dinner would do you a world of good.",
    "They opened the dam slowly so that the fields below would not be flooded.",
    "I left my umbrella on the bus, so now the sun will certainly shine.",
    "The new bridge is so quiet that you can hear the water underneath it.",
    "Somebody has drawn a tiny sailing boat on the back of every chair in here.",
    "The library stays open late on Thursdays, and they serve tea in the reading room.",
    "Her brother collects stamps from countries that do not exist any more.",
    "A good sharp knife makes cooking safer, as long as you respect it.",
    "We counted forty geese on the lake, and then a dozen more arrived.",
    "The meeting has been moved to Tuesday because the projector is being repaired.",
    "This coat belonged to my uncle, who wore it on every one of his voyages.",
    "You will find the bicycle pump in the cupboard under the stairs, behind the boots.",
    "After the concert, the whole orchestra went for noodles at the night market.",
    "The gardener plants garlic between the roses to keep the insects away.",
    "Could you please speak a little more slowly and repeat the second number?",
    "The ferry was late, but the captain made up for it with hot chocolate.",
    "Every spring, the swallows come back to the same nest above the stable door.",
    "He writes his shopping list on the back of his hand and never forgets a thing.",
    "The wind turned during the night and blew the smoke out over the sea.",
    "There is a narrow staircase behind the altar that leads up to the bells.",
    "She keeps a jar of buttons on her desk, one for each finished project.",
    "The teacher drew a circle on the board and asked what it reminded us of.",
    "A bus full of tourists stopped, took pictures of the fountain, and drove away.",
    "We should water the tomatoes tonight, since tomorrow is going to be very hot.",
    "The old lighthouse was sold to a couple who turned it into a tiny hotel.",
    "My favourite part of the film is when nothing happens for five whole minutes.",
    "The tailor looked at the jacket, sighed, and reached for his longest needle.",
    "Turn left after the chemist, cross the square, and ring at the green door.",
    "Nothing tastes better than cold water from the spring after a long climb.",
    "The cat has found a warm spot on the printer and refuses to move.",
    "They grow mushrooms in the cellar, on logs that their grandfather once cut.",
    "The judge smiled, closed the heavy book, and wished both of them a pleasant weekend.",
    "If you listen carefully, you can tell which of the two violins is older.",
    "The snow melted so fast that the path to the village became a stream.",
    "I have packed sandwiches, two apples, a thermos of soup, and a deck of cards.",
    "The clerk stamped the form three times and slid it back under the glass.",
    "Whoever arrives first should switch on the heating and put the kettle on.",
    "The carpenter kept every shaving of the oak for the fire in his workshop.",
    "A message in a bottle was found on the beach, but the ink had faded.",
)
MEAN_CHARACTERS = sum(map(len, SENTENCES)) / len(SENTENCES)


def texts(seed: int) -> Iterator[str]:
    """Sentences without end."""
    draw = random.Random(f"sentences {seed}")
    while True:
        yield from draw.sample(SENTENCES, len(SENTENCES))
