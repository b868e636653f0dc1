// Pays an invoice and announces it in one transaction, with database/sql and no library of the relay; see README.md.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"

	_ "github.com/lib/pq"
)

var errRefused = errors.New("the bank refuses")

func main() {
	log.SetFlags(0)
	db, err := sql.Open("postgres", os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	message, err := pay(context.Background(), db, 120)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(message)

	// The bank refuses this one: neither the invoice nor its message is there.
	if _, err := pay(context.Background(), db, 5000); !errors.Is(err, errRefused) {
		log.Fatalf("this invoice must not be paid: %v", err)
	}
}

// pay writes an invoice and the message about it, both or neither, and returns the message's id.
func pay(ctx context.Context, db *sql.DB, total int) (string, error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return "", err
	}
	defer tx.Rollback() // does nothing after the commit

	var invoice int64
	if err := tx.QueryRowContext(ctx, `INSERT INTO invoice (total) VALUES ($1) RETURNING id`, total).Scan(&invoice); err != nil {
		return "", err
	}
	message, err := enqueue(ctx, tx, "shop", "order.paid", map[string]any{"invoice": invoice, "total": total})
	if err != nil {
		return "", err
	}
	if err := charge(total); err != nil {
		return "", err
	}
	return message, tx.Commit()
}

// enqueue is the whole publish interface: one INSERT in the transaction of the business change.
func enqueue(ctx context.Context, tx *sql.Tx, exchange, routingKey string, content any) (id string, err error) {
	body, err := json.Marshal(content)
	if err != nil {
		return "", err
	}
	const insert = `INSERT INTO queue_message (exchange, routing_key, content) VALUES ($1, $2, $3) RETURNING id`
	err = tx.QueryRowContext(ctx, insert, exchange, routingKey, string(body)).Scan(&id)
	return id, err
}

func charge(total int) error {
	if total > 1000 {
		return errRefused
	}
	return nil
}
