import { describe } from "node:test";
import { work } from "./e2e/work.mjs";
import { skip } from "./harness/browser.mjs";

describe("console, work, zh", { skip }, () => work("zh"));
