import { describe } from "node:test";
import { pages } from "./e2e/pages.mjs";
import { skip } from "./harness/browser.mjs";

describe("console, pages, en", { skip }, () => pages("en"));
