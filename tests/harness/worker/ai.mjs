// Workers AI as the built Worker sees it: an object with `run`. What it answers is the test's upstream's word,
// asked for at /ai/run/{model}, so a test steers it and sees its input like any other provider's.

/** The binding, where the harness was told of an upstream for it. */
export function fakeAi(url) {
  return { run: (model, input) => run(`${url}/ai/run/${model}`, input) };
}

async function run(url, input) {
  const answer = await fetch(url, { method: "POST", body: JSON.stringify(input) });
  if (!answer.ok) throw new Error((await answer.json()).error.message);
  return input.stream ? answer.body : answer.json();
}
