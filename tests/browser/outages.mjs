// What the page does when its server restarts, is lost, or refuses it. These checks leave complaints in the console, and
// come last.

import assert from "node:assert/strict";
import http from "node:http";

import { Relay, rowCount, seqs, sleep, until, waitForRows } from "./harness.mjs";

export function outages({ stage, open, pages }) {
  const relay = new Relay();
  let page, other;

  return {
    async "a restarted server is found again, and counted anew"() {
      [page] = pages;
      await stage.stopProxy();
      await until("the page says so", async () => (await page.textContent("#state")).includes("lost"));
      await stage.serve();
      await until("it is live again", async () => (await page.textContent("#state")).trim() === "live");
      await stage.chat({ tag: "anew" });
      await until("only the new row is left", async () => (await rowCount(page)) === 1 && (await seqs(page))[0] === 1);
    },

    async "another server is told apart although its rows go on where the last one's ended"() {
      await relay.open();
      relay.lead(stage.admin);
      page = await open({ address: relay.address });
      await waitForRows(1, page);
      relay.lead(null);
      await until("the page says so", async () => (await page.textContent("#state")).includes("lost"));
      other = await stage.beside();
      for (let i = 0; i < 4; i++) await stage.chat({ listen: other.listen, tag: "other" });
      relay.lead(other.admin);
      await until("the other server's rows are all there", async () => (await seqs(page)).join() === "4,3,2,1");
      assert.deepEqual(await page.locator("#rows tr").evaluateAll((rows) => rows.map((row) => row.line.item.row.tag)), ["other", "other", "other", "other"]);
      assert.ok(!(await page.textContent("#count")).includes("not shown"));
    },

    async "what was missed while the connection was lost is counted"() {
      relay.lead(null);
      await until("the page says so", async () => (await page.textContent("#state")).includes("lost"));
      // More than the server repeats.
      for (let sent = 0; sent < 300; sent += 20) {
        await Promise.all(Array.from({ length: 20 }, () => stage.chat({ listen: other.listen, sim: "ttft_ms=1,tokens=1" })));
      }
      relay.lead(other.admin);
      await until("the newest is there", async () => (await seqs(page))[0] === 304);
      const order = (await seqs(page)).reverse();
      assert.deepEqual(order.slice(0, 4), [1, 2, 3, 4]);
      const missed = order[4] - 5;
      assert.ok(missed > 0, "nothing was missed");
      assert.ok((await page.textContent("#count")).includes(`+${missed} not shown`), await page.textContent("#count"));
    },

    async "the reason for a refusal is the server's own"() {
      relay.lead(stage.admin, "rebound.example");
      await until("the page says that the host is foreign", async () => /the host "rebound\.example" is neither/.test(await page.textContent("#state")));
      relay.lead(other.admin);
      await until("it is live again", async () => (await page.textContent("#state")).trim() === "live");

      const seats = [];
      const sit = () => new Promise((done, fail) => {
        const request = http.get(`http://${stage.admin}/live`, (reply) => {
          reply.on("error", () => {});
          reply.resume();
          seats.push(request);
          done(reply.statusCode === 200);
        }).on("error", fail);
      });
      while (await sit()) assert.ok(seats.length < 100, "there is no limit");
      const late = await open();
      await until("the page says that there are too many", async () => /live pages are open already: close one/.test(await late.textContent("#state")));
      for (const request of seats) request.destroy();
      await until("it has a seat", async () => (await late.textContent("#state")).trim() === "live");
      await late.context().close();
    },

    async "a page listens while it is seen, and only then"() {
      const hide = (tab, hidden) => tab.evaluate((hidden) => {
        Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
        document.dispatchEvent(new Event("visibilitychange"));
      }, hidden);
      const live = (tab) => until("it is live", async () => (await tab.textContent("#state")).trim() === "live");
      relay.lead(other.admin);
      const tab = await open({ address: relay.address, hidden: true });
      await sleep(600);
      assert.notEqual((await tab.textContent("#state")).trim(), "live", "it listens before anybody sees it");
      await hide(tab, false);
      await live(tab);
      const before = (await seqs(tab))[0];
      await hide(tab, true);
      await stage.chat({ listen: other.listen, sim: "ttft_ms=1,tokens=1" });
      await sleep(600);
      assert.equal((await seqs(tab))[0], before, "it listens although nobody sees it");
      await hide(tab, false);
      await until("it has caught up", async () => (await seqs(tab))[0] === before + 1);
      await tab.context().close();
    },

    async "nothing broke on the way"() {
      assert.deepEqual(pages.flatMap(({ complaints }) => complaints.filter((text) => /^uncaught:|CSP:/.test(text))), []);
    },
  };
}
