/** Jobs of `driver.js` in node: one a line of the input. */

import { createInterface } from "node:readline";

import { run } from "./driver.js";

for await (const line of createInterface({ input: process.stdin })) {
  process.stdout.write(`${JSON.stringify(await run(JSON.parse(line)))}\n`);
}
