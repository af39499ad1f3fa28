//! What an account keeps in its own SQLite: one packed row for the hot state, one for how the user
//! stands, and the sealed pages of its windows. Rows written are what costs, so a call writes the hot
//! row and seldom anything else.

use worker::wasm_bindgen::prelude::wasm_bindgen;
use worker::wasm_bindgen::{self, JsValue};
use worker::{SqlStorage, SqlStorageValue, Storage};

#[wasm_bindgen(module = "/js/account.js")]
extern "C" {
    #[wasm_bindgen(js_name = save, catch)]
    fn js_save(sql: &JsValue, statement: &str, id: f64, body: &[u8]) -> Result<(), JsValue>;
}

/// Id of the row that holds the packed account.
const ACCOUNT: i32 = 1;
/// Id of the row that holds how the user stands.
const STANDING: i32 = 2;

/// An account's own storage.
pub struct Hot {
    sql: SqlStorage,
}

/// Everything that was stored.
pub struct Stored {
    /// The packed account.
    pub account: Vec<u8>,
    /// How the user stands.
    pub standing: Vec<u8>,
    /// Sealed window pages, by key.
    pub pages: Vec<(String, Vec<u8>)>,
}

impl Hot {
    /// Opens the storage, making its tables on first use.
    pub fn open(storage: &Storage) -> worker::Result<Self> {
        let sql = storage.sql();
        let tables = [
            "CREATE TABLE IF NOT EXISTS cell (id INTEGER PRIMARY KEY, body BLOB NOT NULL) STRICT",
            "CREATE TABLE IF NOT EXISTS page (key TEXT PRIMARY KEY, body BLOB NOT NULL) \
             STRICT, WITHOUT ROWID",
        ];
        for table in tables {
            sql.exec(table, None)?;
        }
        Ok(Self { sql })
    }

    /// What was stored; `None` if this storage has never been used.
    pub fn load(&self) -> worker::Result<Option<Stored>> {
        let Some(account) = self.cell(ACCOUNT)? else {
            return Ok(None);
        };
        Ok(Some(Stored {
            account,
            standing: self.cell(STANDING)?.unwrap_or_default(),
            pages: self.pages()?,
        }))
    }

    /// Stores the packed account: one row written.
    pub fn save_account(&self, body: &[u8]) -> worker::Result<()> {
        self.save_cell(ACCOUNT, body)
    }

    /// Stores how the user stands.
    pub fn save_standing(&self, body: &[u8]) -> worker::Result<()> {
        self.save_cell(STANDING, body)
    }

    /// Stores one sealed window page.
    pub fn save_page(&self, key: String, body: Vec<u8>) -> worker::Result<()> {
        let sql = "INSERT INTO page (key, body) VALUES (?, ?) \
                   ON CONFLICT (key) DO UPDATE SET body = excluded.body";
        let binds = vec![SqlStorageValue::String(key), SqlStorageValue::Blob(body)];
        self.sql.exec(sql, Some(binds)).map(|_| ())
    }

    /// Deletes one page whose calls have all left their window.
    pub fn drop_page(&self, key: String) -> worker::Result<()> {
        let binds = vec![SqlStorageValue::String(key)];
        self.sql
            .exec("DELETE FROM page WHERE key = ?", Some(binds))
            .map(|_| ())
    }

    fn save_cell(&self, id: i32, body: &[u8]) -> worker::Result<()> {
        let statement = "INSERT INTO cell (id, body) VALUES (?, ?) \
                         ON CONFLICT (id) DO UPDATE SET body = excluded.body";
        Ok(js_save(self.sql.as_ref(), statement, f64::from(id), body)?)
    }

    fn cell(&self, id: i32) -> worker::Result<Option<Vec<u8>>> {
        let binds = vec![SqlStorageValue::from(id)];
        let rows = self
            .sql
            .exec("SELECT body FROM cell WHERE id = ?", Some(binds))?;
        match rows.raw().next().transpose()? {
            Some(row) => Ok(row.into_iter().next().and_then(blob)),
            None => Ok(None),
        }
    }

    fn pages(&self) -> worker::Result<Vec<(String, Vec<u8>)>> {
        let rows = self
            .sql
            .exec("SELECT key, body FROM page ORDER BY key", None)?;
        let mut pages = Vec::new();
        for row in rows.raw() {
            let mut values = row?.into_iter();
            if let (Some(SqlStorageValue::String(key)), Some(body)) =
                (values.next(), values.next().and_then(blob))
            {
                pages.push((key, body));
            }
        }
        Ok(pages)
    }
}

fn blob(value: SqlStorageValue) -> Option<Vec<u8>> {
    match value {
        SqlStorageValue::Blob(bytes) => Some(bytes),
        _ => None,
    }
}
