"""The floor: every legal transition, and that every other one is refused."""

from itertools import product

import pytest

from voice_agent.errors import IllegalTransition
from voice_agent.turn.machine import TABLE, Action, Event, Reply, TurnMachine, User

S, P, Q = User.SILENT, User.SPEAKING, User.PAUSED
N, T, K, H = Reply.NONE, Reply.THINKING, Reply.SPEAKING, Reply.HELD
ANY_REPLY, ANY_USER, IN_TURN, FLOOR = (N, T, K, H), (S, P, Q), (P, Q), (T, K)

# users, replies, event, user after (None: same), reply after (None: same), actions
LEGAL: list[
    tuple[tuple[User, ...], tuple[Reply, ...], Event, User | None, Reply | None, tuple[Action, ...]]
] = [
    ((S,), ANY_REPLY, Event.ONSET, P, None, (Action.OPEN_TURN,)),
    ((P,), ANY_REPLY, Event.PAUSE, Q, None, (Action.WORK_AHEAD,)),
    ((Q,), ANY_REPLY, Event.RESUME, P, None, (Action.DROP_AHEAD,)),
    (IN_TURN, (N,), Event.TURN_END, S, None, (Action.COMMIT,)),
    (IN_TURN, FLOOR, Event.TURN_END, S, None, (Action.FORGET_TURN,)),
    (IN_TURN, FLOOR, Event.OVERLAP, None, H, (Action.HOLD,)),
    (ANY_USER, (H,), Event.INTERRUPT, None, N, (Action.CANCEL,)),
    (ANY_USER, (H,), Event.BACKCHANNEL, S, T, (Action.RESUME, Action.FORGET_TURN)),
    (ANY_USER, (N,), Event.REPLY, None, T, ()),
    (ANY_USER, FLOOR, Event.SOUND, None, K, ()),
    (ANY_USER, (H,), Event.SOUND, None, H, ()),
    (ANY_USER, (T, K), Event.OVER, None, N, ()),
    (ANY_USER, (H,), Event.OVER, None, N, (Action.RESUME,)),
    (ANY_USER, (N, T, K), Event.CLEAR, S, None, (Action.FORGET_TURN,)),
    (ANY_USER, (H,), Event.CLEAR, S, T, (Action.RESUME, Action.FORGET_TURN)),
    (ANY_USER, (T, K, H), Event.CANCEL, None, N, (Action.CANCEL,)),
]
EXPECTED = {
    (user, reply, event): (after_user or user, after_reply or reply, actions)
    for users, replies, event, after_user, after_reply, actions in LEGAL
    for user, reply in product(users, replies)
}


def machine_in(user: User, reply: Reply) -> TurnMachine:
    machine = TurnMachine()
    machine.user, machine.reply = user, reply
    return machine


@pytest.mark.parametrize(("user", "reply", "event"), list(product(User, Reply, Event)))
def test_every_pair_and_event_does_what_the_table_says_or_is_refused(
    user: User, reply: Reply, event: Event
) -> None:
    machine = machine_in(user, reply)
    expected = EXPECTED.get((user, reply, event))
    assert machine.can(event) is (expected is not None)
    if expected is None:
        with pytest.raises(IllegalTransition, match=event.value):
            machine.handle(event)
        assert (machine.user, machine.reply) == (user, reply)
    else:
        actions = machine.handle(event)
        assert (machine.user, machine.reply, actions) == expected


def test_table_has_no_row_beyond_the_expected_ones() -> None:
    assert set(TABLE) == set(EXPECTED)


def test_a_held_reply_that_was_heard_goes_back_to_speaking() -> None:
    machine = TurnMachine()
    for event in (Event.REPLY, Event.SOUND, Event.ONSET, Event.OVERLAP, Event.BACKCHANNEL):
        machine.handle(event)
    assert (machine.user, machine.reply) == (User.SILENT, Reply.SPEAKING)


def test_sound_of_an_earlier_reply_does_not_count_for_the_next() -> None:
    machine = TurnMachine()
    for event in (Event.REPLY, Event.SOUND, Event.OVER, Event.REPLY, Event.ONSET, Event.OVERLAP):
        machine.handle(event)
    machine.handle(Event.BACKCHANNEL)
    assert machine.reply is Reply.THINKING


@pytest.mark.parametrize(
    ("user", "reply", "word"),
    [
        (S, N, "listening"),
        (P, N, "hearing"),
        (Q, N, "hearing"),
        (S, T, "thinking"),
        (P, K, "speaking"),
        (P, H, "held"),
    ],
)
def test_state_is_one_word(user: User, reply: Reply, word: str) -> None:
    assert machine_in(user, reply).state == word
