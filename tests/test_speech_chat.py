"""Chat history: what was heard, valid pairs of calls and results, a stable beginning, bounds."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from voice_agent.speech.chat import CANCELLED, ROOT, Chat, Item


def roles(chat: Chat) -> list[str]:
    return [message["role"] for message in chat.messages("")]


def assert_valid(messages: list[dict[str, Any]]) -> None:
    """Every call has exactly one result, directly behind; no result without a call; roles alternate."""
    at = 0
    while at < len(messages):
        calls = [call["id"] for call in messages[at].get("tool_calls", [])]
        results = [message["tool_call_id"] for message in messages[at + 1 : at + 1 + len(calls)]]
        assert results == calls
        for call in messages[at].get("tool_calls", []):
            assert isinstance(json.loads(call["function"]["arguments"]), dict)
        at += 1 + len(calls)
        if at < len(messages):
            assert messages[at]["role"] != "tool"
    for one, two in zip(messages, messages[1:], strict=False):
        assert one["role"] != "user" or two["role"] != "user"


def test_messages_are_the_instructions_and_what_was_said() -> None:
    chat = Chat()
    chat.add_user("t1", "Hi.")
    chat.add_assistant("r1", "Hel")
    chat.add_assistant("r1", "Hello.")
    chat.finish("r1")
    chat.add_system("s1", "Be brief.")
    chat.add_user("t2", "Bye.")
    assert chat.messages("Be kind.") == [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Hi."},
        {"role": "assistant", "content": "Hello."},
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Bye."},
    ]


def test_turns_in_a_row_are_merged_in_the_messages_and_kept_apart_in_the_history() -> None:
    chat = Chat()
    chat.add_user("t1", "One.")
    chat.add_user("t2", "Two.")
    assert chat.messages("") == [{"role": "user", "content": "One.\nTwo."}]
    assert [item.id for item in chat.items] == ["t1", "t2"]


def test_an_interrupted_reply_keeps_what_was_heard() -> None:
    chat = Chat()
    chat.add_user("t1", "Hi.")
    chat.add_assistant("r1", "One two three four.")
    assert chat.hear("r1", "One two")
    assert not chat.add_assistant("r1", "One two three four five.")  # a late delta
    assert not chat.finish("r1")
    assert chat.messages("")[-1] == {"role": "assistant", "content": "One two"}
    item = chat.get("r1")
    assert item is not None
    assert (item.interrupted, item.status) == (True, "incomplete")


def test_heard_again_can_only_shorten() -> None:
    chat = Chat()
    chat.add_assistant("r1", "One two three.")
    chat.hear("r1", "One two")
    chat.hear("r1", "One two three.")
    assert chat.messages("")[0]["content"] == "One two"
    chat.hear("r1", "One")
    assert chat.messages("")[0]["content"] == "One"


def test_a_reply_of_which_nothing_was_heard_is_no_message_but_known_as_interrupted() -> None:
    chat = Chat()
    chat.add_user("t1", "Hi.")
    chat.add_assistant("r1", "Never heard.")
    chat.hear("r1", "")
    chat.add_user("t2", "Listen.")
    assert chat.messages("") == [{"role": "user", "content": "Hi.\nListen."}]
    item = chat.get("r1")
    assert item is not None
    assert item.interrupted


def test_a_finished_reply_is_never_erased() -> None:
    chat = Chat()
    chat.add_assistant("r1", "All of it.")
    chat.finish("r1")
    assert not chat.hear("r1", "")
    assert chat.items[0] == Item("r1", "message", "All of it.", "assistant", "completed")
    assert chat.truncate("r1", "All")  # a client that plays by itself knows better
    assert chat.messages("")[0]["content"] == "All"


def test_parallel_calls_share_a_message_and_each_has_its_result() -> None:
    chat = Chat()
    chat.add_user("t1", "Weather?")
    chat.add_assistant("r1", "Let me look.")
    chat.add_call("i1", "c1", "weather", '{"city": "Seoul"}')
    chat.add_call("i2", "c2", "time", "{}")
    assert chat.add_result("i3", "c2", "noon")
    assert chat.add_result("i4", "c1", "sunny")
    messages = chat.messages("")
    assert_valid(messages)
    assert messages[1]["content"] == "Let me look."
    assert [call["id"] for call in messages[1]["tool_calls"]] == ["c1", "c2"]
    assert [message.get("content") for message in messages[2:]] == ["sunny", "noon"]


def test_a_call_made_after_a_result_is_a_round_of_its_own() -> None:
    chat = Chat()
    chat.add_user("t1", "Weather?")
    chat.add_call("i1", "c1", "where", "{}")
    chat.add_result("i2", "c1", "Seoul")
    before = chat.messages("")
    chat.add_call("i3", "c2", "weather", "{}")
    assert chat.messages("")[: len(before)] == before
    assert roles(chat) == ["user", "assistant", "tool", "assistant", "tool"]


def test_an_orphan_call_is_cancelled_and_its_late_result_ignored() -> None:
    chat = Chat()
    chat.add_user("t1", "Weather?")
    chat.add_call("i1", "c1", "weather", "{}")
    open_messages = chat.messages("")
    assert open_messages[-1] == {"role": "tool", "tool_call_id": "c1", "content": CANCELLED}
    chat.add_user("t2", "Never mind.")
    assert chat.cancel_calls() == ("c1",)
    assert chat.open_calls() == ()
    assert chat.messages("")[: len(open_messages)] == open_messages
    assert not chat.add_result("i9", "c1", "sunny")
    assert chat.cancel_calls() == ()
    assert_valid(chat.messages(""))


def test_results_nobody_waits_for_and_repeated_calls_are_refused() -> None:
    chat = Chat()
    assert not chat.add_result("i1", "c1", "x")
    assert chat.add_call("i1", "c1", "f", "{}")
    assert not chat.add_call("i2", "c1", "f", "{}")
    assert chat.add_result("i3", "c1", "x")
    assert not chat.add_result("i4", "c1", "y")
    assert [m["content"] for m in chat.messages("")] == ["", "x"]


def test_malformed_arguments_do_not_spoil_the_next_request() -> None:
    chat = Chat()
    for n, arguments in enumerate(['{"a":"', "", "[1]", "null", "[" * 100_000]):
        chat.add_call(f"i{n}", f"c{n}", "f", arguments)
    assert_valid(chat.messages(""))


def test_items_are_inserted_found_and_deleted_by_id() -> None:
    chat = Chat()
    assert chat.insert(Item("b", "message", "B", "user"))
    assert chat.insert(Item("a", "message", "A", "system"), after=ROOT)
    assert chat.insert(Item("c", "message", "C", "assistant"), after="a")
    assert [item.id for item in chat.items] == ["a", "c", "b"]
    assert not chat.insert(Item("d", "message", "D"), after="nobody")
    assert not chat.insert(Item("a", "message", "again"))
    assert chat.delete("c")
    assert not chat.delete("c")
    assert chat.get("c") is None


def test_deleting_a_call_takes_its_result_along_and_deleting_a_result_leaves_a_cancelled_call() -> None:
    chat = Chat()
    chat.add_call("i1", "c1", "f", "{}")
    chat.add_result("i2", "c1", "x")
    chat.delete("i2")
    assert chat.messages("")[-1]["content"] == CANCELLED
    chat.add_result("i3", "c1", "y")
    chat.delete("i1")
    assert chat.items == ()


def test_oldest_turns_are_dropped_whole_and_rarely() -> None:
    chat, drops = Chat(max_items=40), 0
    chat.add_system("s", "Stay.")
    for n in range(100):
        before = chat.messages("")
        chat.add_user(f"t{n}", f"question {n}")
        chat.add_call(f"k{n}", f"c{n}", "f", "{}")
        chat.add_result(f"o{n}", f"c{n}", "x")
        chat.add_assistant(f"r{n}", f"answer {n}")
        chat.finish(f"r{n}")
        messages = chat.messages("")
        assert_valid(messages)
        assert messages[0]["content"] == "Stay."
        assert messages[1]["role"] == "user"
        assert messages[-1]["content"] == f"answer {n}"
        assert len(chat.items) <= 40
        drops += messages[: len(before)] != before
    assert drops <= 100 // 3  # a quarter of 40 items is more than two turns of four


def test_one_endless_turn_stays_in_bounds() -> None:
    chat = Chat(max_items=8)
    for n in range(50):
        chat.add_call(f"k{n}", f"c{n}", "f", "{}")
        chat.add_result(f"o{n}", f"c{n}", "x")
        assert len(chat.items) <= 8
        assert_valid(chat.messages(""))


_steps = st.lists(
    st.tuples(
        st.sampled_from(["user", "say", "hear", "finish", "call", "result", "cancel", "delete"]),
        st.integers(0, 4),
        st.text("ab ", max_size=3),
    ),
    max_size=40,
)


@given(_steps)
def test_whatever_happens_the_messages_are_valid(steps: list[tuple[str, int, str]]) -> None:
    chat = Chat(max_items=12)
    for n, (step, which, text) in enumerate(steps):
        match step:
            case "user":
                chat.add_user(f"t{n}", text)
            case "say":
                chat.add_assistant(f"r{which}", text)
            case "hear":
                chat.hear(f"r{which}", text)
            case "finish":
                chat.finish(f"r{which}")
            case "call":
                chat.add_call(f"k{n}", f"c{which}", "f", text)
            case "result":
                chat.add_result(f"o{n}", f"c{which}", text)
            case "cancel":
                chat.cancel_calls()
            case _:
                if chat.items:
                    chat.delete(chat.items[which % len(chat.items)].id)
        assert_valid(chat.messages("Be kind."))
        assert len(chat.items) <= 12
