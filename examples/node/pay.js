// Pays an invoice and announces it in one transaction, with pg and no library of the relay; see README.md.
import pg from "pg";

class Refused extends Error {}

// Writes an invoice and the message about it, both or neither; returns the message's id.
async function pay(client, total) {
  await client.query("BEGIN");
  try {
    const invoice = await client.query("INSERT INTO invoice (total) VALUES ($1) RETURNING id", [total]);
    const message = await enqueue(client, "shop", "order.paid", { invoice: Number(invoice.rows[0].id), total });
    charge(total);
    await client.query("COMMIT");
    return message;
  } catch (error) {
    await client.query("ROLLBACK");
    throw error;
  }
}

// The whole publish interface: one INSERT in the transaction of the business change.
async function enqueue(client, exchange, routingKey, content) {
  const insert = "INSERT INTO queue_message (exchange, routing_key, content) VALUES ($1, $2, $3) RETURNING id";
  // As text: pg would turn an array into one of PostgreSQL's, and null into NULL.
  const { rows } = await client.query(insert, [exchange, routingKey, JSON.stringify(content)]);
  return rows[0].id;
}

function charge(total) {
  if (total > 1000) throw new Refused("the bank refuses");
}

const client = new pg.Client({ connectionString: process.env.DATABASE_URL });
await client.connect();
try {
  console.log(await pay(client, 120));
  // The bank refuses this one: neither the invoice nor its message is there.
  await pay(client, 5000).then(
    () => { throw new Error("this invoice must not be paid"); },
    (error) => { if (!(error instanceof Refused)) throw error; },
  );
} finally {
  await client.end();
}
