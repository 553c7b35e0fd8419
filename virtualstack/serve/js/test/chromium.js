/** Jobs of `driver.js` in headless Chromium: one a line of the input. Arguments: the program, and the URL of a page. */

import { readFile } from "node:fs/promises";
import { createInterface } from "node:readline";

import { chromium } from "playwright-core";

const [executablePath, url] = process.argv.slice(2);
const args = [
  "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync",
];
const browser = await chromium.launch({ executablePath, args });
try {
  const page = await browser.newPage();
  page.on("console", (message) => process.stderr.write(`${message.text()}\n`));
  await page.goto(url);
  const code = await readFile(new URL("../dist/test/browser.js", import.meta.url), "utf-8");
  await page.addScriptTag({ content: code, type: "module" });
  await page.waitForFunction("globalThis.run");
  for await (const line of createInterface({ input: process.stdin })) {
    process.stdout.write(`${JSON.stringify(await page.evaluate((job) => globalThis.run(job), JSON.parse(line)))}\n`);
  }
} finally {
  await browser.close();
}
