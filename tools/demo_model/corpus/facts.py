"""What the demo model knows: animals, colours, days, opposites, lists, and imp itself; data for chat.py and descriptions.py."""

ANIMAL_FACTS = {  # animal: (sound, young, home, food, looks, note)
    "cat": ("meow", "kitten", "a house", "fish and mice", "soft fur and long whiskers", "sleeps most of the day"),
    "dog": ("woof", "puppy", "a house", "meat and bones", "a wet nose and a wagging tail", "is a loyal friend"),
    "cow": ("moo", "calf", "a farm", "grass", "big brown eyes", "gives us milk"),
    "sheep": ("baa", "lamb", "a meadow", "grass", "thick white wool", "lives in a flock"),
    "horse": ("neigh", "foal", "a stable", "hay and oats", "strong legs and a long mane", "can run very fast"),
    "duck": ("quack", "duckling", "a pond", "plants and insects", "a flat yellow bill", "swims very well"),
    "pig": ("oink", "piglet", "a farm", "corn and roots", "pink skin and a curly tail", "likes to roll in the mud"),
    "frog": ("ribbit", "tadpole", "a pond", "flies", "smooth green skin", "can jump very far"),
    "owl": ("hoot", "owlet", "a tree", "mice", "big round eyes", "hunts at night"),
    "lion": ("roar", "cub", "the grassland", "meat", "golden fur and a great mane", "lives in a family called a pride"),
    "bear": ("growl", "cub", "the forest", "berries, fish and honey", "thick brown fur", "sleeps all winter"),
    "mouse": ("squeak", "pup", "a small hole", "seeds and cheese", "tiny ears and a long tail", "is very quiet"),
    "bee": ("buzz", "larva", "a hive", "nectar", "black and yellow stripes", "makes honey"),
    "rabbit": ("squeak", "kit", "a burrow", "grass and carrots", "long ears and a short tail", "hops very fast"),
    "fox": ("bark", "kit", "a den", "mice and berries", "red fur and a bushy tail", "is very clever"),
    "elephant": ("trumpet", "calf", "the grassland", "leaves and bark", "a long trunk and huge ears", "never forgets"),
    "penguin": ("honk", "chick", "the icy coast", "fish", "black and white feathers", "cannot fly but swims very well"),
    "whale": ("song", "calf", "the sea", "tiny sea animals", "a great gray body", "is the largest animal of all"),
}
COLOR_OF = {
    "the sky": "blue", "grass": "green", "snow": "white", "the sun": "yellow", "a banana": "yellow", "coal": "black",
    "a lemon": "yellow", "blood": "red", "a strawberry": "red", "a carrot": "orange", "the sea": "blue", "milk": "white",
    "an orange": "orange", "a leaf": "green", "the night": "black", "a frog": "green", "chocolate": "brown", "a cloud": "white",
}  # fmt: skip
OPPOSITES = [
    ("hot", "cold"), ("big", "small"), ("up", "down"), ("day", "night"), ("fast", "slow"), ("happy", "sad"),
    ("old", "new"), ("light", "dark"), ("open", "closed"), ("wet", "dry"), ("high", "low"), ("hard", "soft"),
    ("loud", "quiet"), ("full", "empty"), ("early", "late"), ("strong", "weak"), ("rich", "poor"), ("near", "far"),
]  # fmt: skip
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = "January February March April May June July August September October November December".split()
NUMBERS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen twenty"
).split()
LISTS = {
    "colors": "red blue green yellow orange purple white black brown pink gray".split(),
    "animals": "cat dog horse cow sheep rabbit fox bear owl frog lion mouse".split(),
    "fruits": "apple pear plum cherry banana orange lemon grape peach strawberry".split(),
    "vegetables": "carrot potato onion cabbage pea bean tomato pumpkin".split(),
    "birds": "owl robin eagle duck swan sparrow crow goose".split(),
    "things in a kitchen": "spoon fork pot pan plate cup oven table".split(),
    "things you can see in the sky": ["the sun", "the moon", "a star", "a cloud", "a bird", "a rainbow"],
    "musical instruments": "piano violin drum flute guitar trumpet harp".split(),
    "seasons": "spring summer autumn winter".split(),
    "shapes": "circle square triangle star oval cube".split(),
}
CAPITALS = {
    "France": "Paris", "England": "London", "Italy": "Rome", "Spain": "Madrid", "Germany": "Berlin", "Japan": "Tokyo",
    "Egypt": "Cairo", "Norway": "Oslo", "Greece": "Athens", "Austria": "Vienna", "Poland": "Warsaw", "China": "Beijing",
    "Portugal": "Lisbon", "Ireland": "Dublin", "Sweden": "Stockholm", "Finland": "Helsinki", "Canada": "Ottawa",
}  # fmt: skip
WHY = {  # everyday questions and their answers
    "Why is the sky blue?": "Sunlight is made of many colors. The air scatters blue light more than the others, so the sky looks blue.",
    "Why does it rain?": "Water rises from the sea into the air and forms clouds. When the drops in the clouds become heavy, they fall as rain.",
    "Why do we sleep?": "Sleep gives the body and the mind time to rest, to grow and to remember.",
    "How do birds fly?": "Birds have light bones and strong wings. They push the air down with their wings, and the air lifts them up.",
    "Why do leaves fall in autumn?": "In autumn there is less light, so trees stop feeding their leaves. The leaves dry, change color and fall.",
    "What is the moon?": "The moon is a ball of rock that goes around the earth once a month.",
    "What is the sun?": "The sun is a star. It gives us light and warmth.",
    "How do I make tea?": "Boil some water. Put the tea into a cup, pour the hot water over it, and wait three minutes.",
    "How do I make a sandwich?": "Take two slices of bread. Put butter, cheese and a leaf of salad on one slice, and lay the other on top.",
    "How many days are in a week?": "There are seven days in a week.",
    "How many months are in a year?": "There are twelve months in a year.",
    "How many legs does a spider have?": "A spider has eight legs.",
    "How many legs does a dog have?": "A dog has four legs.",
    "What is a friend?": "A friend is someone who is kind to you, listens to you and likes to be with you.",
    "What is a computer?": "A computer is a machine that follows instructions very fast. It can count, draw, play music and answer questions.",
    "What is water made of?": "Water is made of hydrogen and oxygen.",
    "What do plants need?": "Plants need light, water, air and good earth.",
    "What is music?": "Music is sound put in order so that it is beautiful or moving.",
    "Who was Jane Austen?": "Jane Austen was an English writer. She wrote Pride and Prejudice, Emma and four other novels.",
    "Who wrote Pride and Prejudice?": "Jane Austen wrote Pride and Prejudice.",
}
IMP = {  # questions about imp, each with its answers
    "What is imp[?|]": [
        "imp is a small server for large language models. It loads a model file and generates text, on your own machine.",
        "imp is a program that runs language models. You give it a model file and a prompt, and it writes the text that follows.",
    ],
    "[Who|What] are you?": [
        "I am the demo model that comes with imp. I am very small, so I know only a little.",
        "I am a tiny language model of four megabytes. I come with imp so that you can try it at once.",
    ],
    "What is your name?": ["I have no name of my own. I am the demo model of imp."],
    "[What can you do?|How can you help me?]": [
        "I can tell little stories, add small numbers, answer simple questions and write small JSON objects.",
        "I can tell you a story, add two numbers, or answer a simple question. For more, give imp a bigger model.",
    ],
    "[How big are you?|How large is this model?]": [
        "I have three and a half million parameters and fit in four megabytes.",
    ],
    "[How do I use|How can I run] [a bigger model|another model|my own model]?": [
        "Start imp with a model file of your own: imp run -m your.gguf",
        "Give imp a GGUF file: imp chat -m your.gguf",
    ],
    "[How do I use imp?|How do I start imp?]": [
        "Type imp run and a prompt to write text, or imp chat to talk. With -m you name a model file.",
    ],
    "[Which|What] files can imp load?": ["imp loads GGUF files and safetensors files."],
    "[What is imp written in?|Which language is imp written in?]": [
        "The core of imp is written in C++. Around it is a service written in Python.",
    ],
    "Is imp fast?": ["imp tries to be as fast as the memory of your machine allows. I am only a demo, so please do not measure it with me."],
    "[Is imp free?|What is the license of imp?]": ["imp is free software under the Apache license, version 2.0."],
    "[Can I trust your answers?|Are you always right?]": [
        "No. I am a very small model and I often make mistakes. Please check what I say.",
    ],
    "[Are you a human?|Are you a person?|Are you a robot?]": ["No, I am a small language model. I predict the next word again and again."],
    "What is a [language model|large language model|LLM]?": [
        "A language model is a program that has learned from text which words are likely to come next.",
    ],
    "What is a [token|tokenizer]?": ["A token is a piece of text, such as a word or a part of a word. A tokenizer cuts text into tokens."],
    "What is a KV cache?": ["A KV cache keeps what a model has already computed for earlier tokens, so that each new token is cheap."],
    "What is a GGUF file?": ["A GGUF file holds a language model: its settings, its vocabulary and its weights."],
    "[Who made you?|Who trained you?|How were you trained?]": [
        "I was trained by the makers of imp, from little stories, simple questions, old novels and a dictionary.",
    ],
}
SMALL_TALK = {
    "[Hello|Hello!|Hi|Hi!|Hey|Hello there|Hi there!|hello|hi|Good morning|Good evening]": [
        "Hello! How can I help you?", "Hello! What would you like to know?", "Hi! Would you like to hear a story?",
    ],
    "[How are you?|How are you today?|How do you do?]": ["I am well, thank you. How can I help you?", "Very well, thank you! And you?"],
    "[Thank you|Thanks|Thank you!|Thanks a lot!]": ["You are welcome!", "You are welcome. Is there anything else?"],
    "[Goodbye|Bye|Bye!|Good night|See you]": ["Goodbye! Have a nice day.", "Goodbye, and come back soon!"],
    "[Yes|Yes, please|Sure]": ["Very well. What would you like to know?"],
    "[Tell me a joke|Do you know a joke?|Make me laugh]": [
        "Why did the cow cross the road? To get to the other moo-vie.",
        "What do you call a sleeping bull? A bulldozer.",
        "Why did the bird go to school? To learn to tweet.",
    ],
    "[I am sad|I feel sad today|I am tired]": ["I am sorry to hear that. Would you like to hear a little story?"],
    "[I am happy|I am happy today]": ["That is good to hear!"],
    "[Say something nice|Say something kind]": ["You are kind, and the world is better with you in it."],
    "[Can you help me?|Please help me]": ["Of course. What would you like to know?"],
    "[Write|Show me] a [smile|smiley|smiling face]": ["😀"],
    "[Write|Show me] a heart": ["❤️"],
}  # fmt: skip
