-- MassTransit's transactional outbox of Entity Framework Core, version 8: the table OutboxMessage, with its names as they are by default.
-- columns: SequenceNumber integer, MessageId uuid, EnqueueTime time, ExpirationTime time, Headers text, Properties text, ContentType text, Body text, CorrelationId uuid, DestinationAddress text
-- by: trigger
-- order: given."SequenceNumber"
SELECT
    -- Its delivery locks a row of OutboxState, and none of these: what it is sending looks like what waits.
    'leased'::text AS state,
    false AS stays,
    CASE WHEN source."DestinationAddress" IS NULL THEN 'DestinationAddress is null, and MassTransit would send it nowhere'
        WHEN source."DestinationAddress" !~ '^((rabbitmqs?|amqps?)://[^/?]+/([^/?]+/)?|(exchange|queue):)[^/?]+([?].*)?$'
            THEN 'DestinationAddress is no exchange or queue of RabbitMQ' END AS problem,
    source."MessageId" AS id,
    -- A queue is addressed by the exchange of its name.
    coalesce(@exchange@, regexp_replace(source."DestinationAddress", '^((rabbitmqs?|amqps?)://[^/?]+/([^/?]+/)?|(exchange|queue):)([^/?]+)([?].*)?$', '\5'))
        AS exchange,
    coalesce(@routing_key@, nullif(source."Properties", '')::jsonb ->> 'RMQ-RoutingKey', '') AS routing_key,
    '{}'::jsonb AS content,
    convert_to(source."Body", 'UTF8') AS body,
    jsonb_build_object('messageId', source."MessageId", 'correlationId', source."CorrelationId", 'contentType', source."ContentType",
        'priority', nullif(source."Properties", '')::jsonb -> 'RMQ-Priority', 'replyTo', nullif(source."Properties", '')::jsonb -> 'RMQ-ReplyTo',
        'type', nullif(source."Properties", '')::jsonb -> 'RMQ-Type', 'appId', nullif(source."Properties", '')::jsonb -> 'RMQ-AppId',
        'headers', coalesce(nullif(nullif(source."Headers", '')::jsonb, 'null'), '{}')) AS options,
    nullif(@ordering_key@, '') AS ordering_key,
    CASE WHEN source."EnqueueTime" > now() THEN source."EnqueueTime" END AS available_at,
    source."ExpirationTime" AS expires_at
FROM (SELECT (given).*) AS source
