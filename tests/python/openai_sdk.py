"""openai for Python against the gateway: python openai_sdk.py URL KEY SPENT_KEY WAITING_KEY.

Prints how many calls it should have taken; the two the SDK may add are its own waiting for the last key.
"""

import json
import sys
import time

import openai

url, key, spent, waiting = sys.argv[1:5]
MODEL = "mock-small"
MESSAGES = [{"role": "user", "content": "good morning"}]
SAID = "You said: good morning"


def client(api_key):
    return openai.OpenAI(api_key=api_key, base_url=f"{url}/v1")


def refused(kind, call):
    began = time.monotonic()
    try:
        call()
    except kind as error:
        assert time.monotonic() - began < 5, "it took too long"
        return error
    raise AssertionError("it was not refused")


sdk = client(key)
whole = sdk.chat.completions.create(model=MODEL, messages=MESSAGES)
assert whole.choices[0].message.content == SAID, whole

text = "".join(chunk.choices[0].delta.content or "" for chunk in sdk.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True))
assert text == SAID, text

asked = list(sdk.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True, stream_options={"include_usage": True}))
assert asked[-1].choices == [] and asked[-1].usage.total_tokens == whole.usage.total_tokens, asked[-1]

assert sdk.responses.create(model=MODEL, input="good morning").output_text == SAID
with sdk.responses.stream(model=MODEL, input="good morning") as stream:
    assert stream.get_final_response().output_text == SAID

vectors = sdk.embeddings.create(model=MODEL, input=["a", "b"]).data
assert [len(vector.embedding) for vector in vectors] == [32, 32]
assert MODEL in [model.id for model in sdk.models.list()]

for stream in (False, True):
    error = refused(openai.RateLimitError, lambda: client(spent).chat.completions.create(model=MODEL, messages=MESSAGES, stream=stream))
    assert error.code == "insufficient_quota" and error.status_code == 429, error

error = refused(openai.AuthenticationError, lambda: client("slc_live_nope").chat.completions.create(model=MODEL, messages=MESSAGES))
assert error.code == "invalid_api_key", error
error = refused(openai.BadRequestError, lambda: sdk.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=0))
assert error.param == "max_tokens", error

broken = [{"role": "user", "content": "[[stop_early]][[tokens:40]]"}]
error = refused(openai.APIError, lambda: list(sdk.chat.completions.create(model=MODEL, messages=broken, stream=True)))
assert error.code == "upstream_incomplete", error

assert client(waiting).chat.completions.create(model=MODEL, messages=MESSAGES).choices[0].message.content == SAID
print(json.dumps({"calls": 13}))
