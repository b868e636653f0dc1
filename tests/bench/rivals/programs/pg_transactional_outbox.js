// pg-transactional-outbox with amqplib as its publisher: `schema` makes the table, `relay` runs; LISTENER is polling or replication.
'use strict';
const amqplib = require('amqplib');
const { Client } = require('pg');
const outbox = require('pg-transactional-outbox');

const PARALLEL = Number(process.env.PARALLEL);
const replication = process.env.LISTENER === 'replication';
const names = {
  outboxOrInbox: 'outbox',
  database: 'unused',
  schema: 'public',
  table: 'outbox',
  listenerRole: 'postgres',
  nextMessagesName: 'next_outbox_messages',
  publication: 'outbox_publication',
  replicationSlot: 'outbox_slot',
};
const config = {
  outboxOrInbox: 'outbox',
  dbListenerConfig: { connectionString: process.env.DATABASE_URL },
  dbHandlerConfig: { connectionString: process.env.DATABASE_URL, max: PARALLEL },
  settings: {
    dbSchema: names.schema,
    dbTable: names.table,
    enableMaxAttemptsProtection: false,
    enablePoisonousMessageProtection: false,
    // Its documentation: of importance to the polling listener, and not to the other.
    ...(replication ? {} : { messageCleanupIntervalInMs: 1000, messageCleanupProcessedInSec: 1 }),
    nextMessagesFunctionName: names.nextMessagesName,
    nextMessagesBatchSize: PARALLEL,
    nextMessagesPollingIntervalInMs: 20,
    dbPublication: names.publication,
    dbReplicationSlot: names.replicationSlot,
  },
};

/** One channel with confirms, opened anew when the broker has closed it; a message that no queue takes is an error. */
class Publisher {
  constructor(connection) {
    this.connection = connection;
    this.channel = undefined;
    this.returned = new Set();
  }

  open() {
    this.channel ??= this.connection.createConfirmChannel().then((channel) => {
      channel.on('error', (error) => console.error(`channel: ${error.message}`));
      channel.on('close', () => (this.channel = undefined));
      channel.on('return', (message) => this.returned.add(message.properties.messageId));
      return channel;
    });
    return this.channel;
  }

  async publish(message) {
    const channel = await this.open();
    const { exchange, routingKey } = message.metadata;
    const options = { persistent: true, mandatory: true, contentType: 'application/json', messageId: message.id };
    await new Promise((resolve, reject) => {
      const confirmed = (error) => (error ? reject(error) : resolve());
      channel.publish(exchange, routingKey, Buffer.from(JSON.stringify(message.payload)), options, confirmed);
    });
    if (this.returned.delete(message.id)) throw new Error(`no route: ${routingKey} of ${exchange}`);
  }
}

async function relay() {
  const publisher = new Publisher(await amqplib.connect(process.env.AMQP_URL));
  await publisher.open();
  const handler = { handle: (message) => publisher.publish(message) };
  // Nothing of a success is told; warnings and errors are.
  const logger = outbox.getDefaultLogger('outbox');
  logger.level = 'warn';
  if (replication) {
    const concurrencyStrategy = outbox.createReplicationSemaphoreConcurrencyController(PARALLEL);
    outbox.initializeReplicationMessageListener(config, handler, logger, { concurrencyStrategy });
  } else {
    outbox.initializePollingMessageListener(config, handler, logger);
  }
  console.log('ready');
}

async function schema() {
  const setup = outbox.DatabaseSetup;
  const steps = replication
    ? [setup.dropAndCreateTable(names), setup.setupReplicationCore(names), setup.setupReplicationSlot(names)]
    : [setup.dropAndCreateTable(names), setup.createPollingFunction(names), setup.setupPollingIndexes(names)];
  const client = new Client({ connectionString: process.env.DATABASE_URL });
  await client.connect();
  for (const step of steps) await client.query(step);
  await client.end();
}

({ relay, schema })[process.argv[2]]().catch((error) => {
  console.error(error);
  process.exit(1);
});
