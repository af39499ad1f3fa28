"""anthropic for Python against the gateway: python anthropic_sdk.py URL KEY SPENT_KEY WAITING_KEY.

Prints how many calls it should have taken; the two the SDK may add are its own waiting for the last key.
"""

import json
import sys
import time

import anthropic

url, key, spent, waiting = sys.argv[1:5]
BODY = {"model": "mock-small", "messages": [{"role": "user", "content": "good morning"}], "max_tokens": 100}
SAID = "You said: good morning"


def client(api_key):
    return anthropic.Anthropic(api_key=api_key, base_url=url)


def refused(kind, call):
    began = time.monotonic()
    try:
        call()
    except kind as error:
        assert time.monotonic() - began < 5, "it took too long"
        return error
    raise AssertionError("it was not refused")


sdk = client(key)
whole = sdk.messages.create(**BODY)
assert whole.content[0].text == SAID and whole.stop_reason == "end_turn", whole

with sdk.messages.stream(**BODY) as stream:
    assert "".join(stream.text_stream) == SAID
    final = stream.get_final_message()
assert final.usage.output_tokens == whole.usage.output_tokens, final

count = sdk.messages.count_tokens(model=BODY["model"], messages=BODY["messages"])
assert count.input_tokens > 0

error = refused(anthropic.RateLimitError, lambda: client(spent).messages.create(**BODY))
assert error.body["error"]["type"] == "rate_limit_error", error.body
refused(anthropic.AuthenticationError, lambda: client("slc_live_nope").messages.create(**BODY))
refused(anthropic.BadRequestError, lambda: sdk.messages.create(**{**BODY, "messages": []}))

assert client(waiting).messages.create(**BODY).content[0].text == SAID
print(json.dumps({"calls": 7}))
