export { SluiceClient, SluiceError, SluiceUnavailable } from "./client.js";
export type { ClientOptions, Concluded, ConsumeRequest, Decision, Policy, RefusalError } from "./client.js";
export { Guard } from "./guard.js";
export type { GuardOptions, OutageOptions, Outcome, Refused } from "./guard.js";
export { Ticket } from "./ticket.js";
