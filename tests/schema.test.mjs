import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { DatabaseSync } from "node:sqlite";
import { test } from "node:test";
import { inRoot } from "../scripts/lib/paths.mjs";
import { splitSql } from "./harness/sql.mjs";

const read = (...path) => readFileSync(inRoot(...path), "utf8");
const migrations = readdirSync(inRoot("migrations")).filter((name) => name.endsWith(".sql")).sort();

/** All that a fresh database holds after the scripts, whatever their layout. */
function schemaAfter(scripts) {
  const database = new DatabaseSync(":memory:");
  for (const script of scripts) database.exec(script);
  const rows = database.prepare("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name").all();
  return rows.map((row) => ({ ...row, sql: row.sql && plain(row.sql) }));
}

const plain = (sql) => sql.replace(/--[^\n]*/g, "").replace(/\s+/g, " ").replace(/\s*([(),])\s*/g, "$1").trim();

test("schema.sql is the sum of the migrations", () => {
  const summed = schemaAfter(migrations.map((name) => read("migrations", name)));
  assert.ok(summed.length > 0);
  assert.deepEqual(schemaAfter([read("schema.sql")]), summed);
});

test("migrations are numbered without gaps", () => {
  assert.deepEqual(migrations.map((name) => Number(name.slice(0, 4))), migrations.map((_, i) => i + 1));
});

test("a migration split into statements does what it does in one piece", () => {
  const scripts = migrations.map((name) => read("migrations", name));
  assert.deepEqual(schemaAfter(scripts.flatMap(splitSql)), schemaAfter(scripts));
});

test("statements are split outside of strings, comments and triggers only", () => {
  const script = `CREATE TABLE a (b TEXT DEFAULT 'x;y'); -- not; here
    CREATE TRIGGER t AFTER INSERT ON a BEGIN UPDATE a SET b = CASE WHEN 1 THEN ';' END; DELETE FROM a; END;
    /* nor; here */ SELECT "c;d" FROM a`;
  assert.equal(splitSql(script).length, 3);
});
