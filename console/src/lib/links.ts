/**
 * An id as one segment of a page's address. `~` stands for the usual `%`, because the router decodes
 * the address once by itself: a `%2F` inside an id would come back as a slash.
 */
export function toSegment(id: string): string {
  return encodeURIComponent(id).replaceAll('~', '%7E').replaceAll('%', '~');
}

export function fromSegment(segment: string): string {
  try {
    return decodeURIComponent(segment.replaceAll('~', '%'));
  } catch {
    return segment;
  }
}

export function userPage(userId: string): string {
  return `/users/${toSegment(userId)}`;
}

export function planPage(planId: string): string {
  return `/plans/${toSegment(planId)}`;
}
