/*
 * Keys and their bounds. Messages name key, value, bounds and what to use instead; the families
 * call these with tables.
 */
#include "model/keys.h"

#include <stdio.h>
#include <string.h>

const yoke_model_key *yoke_model_key_find(const yoke_model *model, const char *name)
{
    for (int i = 0; i < model->n_keys; i++) {
        if (strcmp(model->keys[i].name, name) == 0) {
            return &model->keys[i];
        }
    }
    return NULL;
}

const yoke_model_constant *yoke_model_constant_find(const yoke_model *model, const char *name)
{
    for (int i = 0; i < model->n_constants; i++) {
        if (strcmp(model->constants[i].name, name) == 0) {
            return &model->constants[i];
        }
    }
    return NULL;
}

const char *yoke_model_word(const yoke_model *model, const yoke_model_key *key, double value,
                            char *text, int text_bytes)
{
    const yoke_model_constant *constant = yoke_model_constant_find(model, key->name);
    YOKE_ASSERT(key->kind == YOKE_KEY_WORD && constant != NULL);
    const char *word = constant->accepted;
    for (int i = 0; i < (int)value; i++) {
        word += strcspn(word, " ");
        word += strspn(word, " ");
    }
    (void)snprintf(text, (size_t)text_bytes, "%.*s", (int)strcspn(word, " "), word);
    return text;
}

static yoke_status check_range(const yoke_model_config *config, const yoke_key_range *range)
{
    const yoke_model_key *key = yoke_model_key_find(config->model, range->key);
    YOKE_ASSERT(key != NULL);
    double value = yoke_model_value(config, range->key);
    if (key->fallback == YOKE_KEY_DERIVED && value == YOKE_KEY_DERIVED) {
        return YOKE_OK;
    }
    if (value >= range->low && value <= range->high) {
        return YOKE_OK;
    }
    const char *or_null = key->fallback == YOKE_KEY_DERIVED ? ", or null" : "";
    return YOKE_FAIL(YOKE_BAD_INPUT, "%s=%.10g is out of range; use %.10g to %.10g%s (%s)",
                     range->key, value, range->low, range->high, or_null, key->help);
}

yoke_status yoke_model_check_ranges(const yoke_model_config *config, const yoke_key_range *ranges,
                                    int n_ranges)
{
    for (int i = 0; i < n_ranges; i++) {
        YOKE_TRY(check_range(config, &ranges[i]));
    }
    return YOKE_OK;
}

yoke_status yoke_model_check_rate(const yoke_model_config *config, const char *key)
{
    double rate = yoke_model_value(config, key);
    if (rate >= 0.0 && rate < 1.0) {
        return YOKE_OK;
    }
    return YOKE_FAIL(YOKE_BAD_INPUT,
                     "%s=%.10g is no dropout rate; use 0 (no dropout) or more, below 1", key, rate);
}

/* Writes the divisors of n, "1, 2, 4 or 8", the largest ones left out where the buffer ends. */
static const char *print_divisors(int64_t n, char *buffer, int buffer_bytes)
{
    int length = snprintf(buffer, (size_t)buffer_bytes, "1");
    for (int64_t divisor = 2; divisor <= n; divisor++) {
        if (n % divisor != 0) {
            continue;
        }
        const char *join = divisor == n ? " or " : ", ";
        int more = snprintf(buffer + length, (size_t)(buffer_bytes - length), "%s%lld", join,
                            (long long)divisor);
        if (more >= buffer_bytes - length) {
            buffer[length] = '\0';
            break;
        }
        length += more;
    }
    return buffer;
}

yoke_status yoke_model_check_divides(const yoke_model_config *config, const char *whole,
                                     const char *parts)
{
    char divisors[96];
    int64_t n = yoke_model_int(config, whole);
    int64_t n_parts = yoke_model_int(config, parts);
    if (n % n_parts == 0) {
        return YOKE_OK;
    }
    return YOKE_FAIL(YOKE_BAD_INPUT, "%s=%lld does not divide by %s=%lld; use %s=%s, or %s=%lld",
                     whole, (long long)n, parts, (long long)n_parts, parts,
                     print_divisors(n, divisors, sizeof divisors), whole,
                     (long long)((n / n_parts + 1) * n_parts));
}
