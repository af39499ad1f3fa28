// What everything else is compared with: a Worker that only passes calls on.
export default {
  fetch(request, env) {
    const { pathname, search } = new URL(request.url);
    return fetch(env.UPSTREAM_URL + pathname + search, request);
  },
};
